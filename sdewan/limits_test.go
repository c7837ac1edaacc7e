package sdewan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"subctl/api/crds"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// renamed are the fields of rules that have another name in the REST API.
var renamed = map[string]string{
	"connections.connection_name": "connections.name",
	"connections.type":            "connections.conn_type",
	"members.network":             "members.interface",
	"newtork":                     "network",
	"remote":                      "gateway",
}

// The REST API accepts what the schemas of the CRDs accept, and no more: the same lengths, the same
// numbers of elements, and the same numbers.
func TestLimits(t *testing.T) {
	definitions, err := crds.SDEWAN()
	require.NoError(t, err)
	compared := 0
	messages := map[string]string{}
	var compare func(kind string, s apiextensionsv1.JSONSchemaProps, around string)
	compare = func(kind string, s apiextensionsv1.JSONSchemaProps, around string) {
		for name, p := range s.Properties {
			field := strings.TrimPrefix(around+"."+name, ".")
			if to, ok := renamed[field]; ok {
				field = to
			}
			at := kind + " " + field
			if p.Type == "array" {
				require.NotNil(t, p.MaxItems, at)
				require.EqualValues(t, rest.MaxItems[field], *p.MaxItems, at)
				p = *p.Items.Schema
			}
			for _, v := range p.XValidations {
				messages[field] += v.Message
			}
			compare(kind, p, field)
			if at == "CNFRouteRule src" || field == "priority" { // an address, unlike zones; not in the REST API
				continue
			}
			// the name of the object counts, and a port to which something is translated is one
			if p.MaxLength != nil && field != "name" && !(strings.HasSuffix(field, "dport") || field == "dest_port") {
				compared++
				require.EqualValues(t, rest.LengthOf(field), *p.MaxLength, at)
			}
		}
	}
	for _, crd := range definitions {
		is := func(k sdewan.Kind) bool { return k.GVK.Kind == crd.Spec.Names.Kind }
		if slices.ContainsFunc(sdewan.Kinds(), is) {
			compare(crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], "")
		}
	}
	require.Greater(t, compared, 100)
	for field, most := range map[string]int{
		"members.max_loss": rest.MaxPercent, "members.max_jitter": rest.MaxMilliseconds,
		"members.metric": rest.MaxMetric, "members.weight": rest.MaxWeight, "timeout": rest.MaxSeconds,
	} {
		require.Contains(t, messages[field], fmt.Sprintf("from 1 to %d", most), field)
	}
}
