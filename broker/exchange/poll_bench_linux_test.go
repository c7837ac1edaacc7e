package exchange

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/internal/measure"
)

// listServerEnv is set in the process of TestListServer.
const listServerEnv = "SUBCTL_LIST_SERVER"

// TestListServer is the process of an API server that always answers the same, for BenchmarkPolls:
// its CPU time does not count. It has the lists of a clusterset of two members, of which one has
// filled its places, as a hub sees them.
func TestListServer(t *testing.T) {
	if os.Getenv(listServerEnv) == "" {
		return
	}
	bodies := map[string][]byte{}
	for _, k := range Kinds() {
		var items []string
		for _, id := range []string{"spoke-0001", "hub"} {
			for n := range k.Reserved {
				o := k.Empty("submariner-k8s-broker-set-0001", id, n)
				if k.Named != nil && n == 0 {
					o = memberCluster(t, id)
					if !k.Named.HasGrant {
						o = gatewayAs(t, id)
					}
				}
				items = append(items, stored(t, o))
			}
		}
		bodies[k.Resource] = []byte(
			fmt.Sprintf(
				`{"apiVersion":%q,"items":[%s],"kind":"%sList","metadata":{"continue":"","resourceVersion":"4711"}}`+
					"\n",
				k.GroupVersion.String(),
				strings.Join(items, ","),
				k.Name,
			),
		)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(bodies[path.Base(r.URL.Path)])
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	fmt.Println("server", server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// gatewayAs returns an Endpoint of a cluster.
func gatewayAs(t *testing.T, id string) client.Object {
	t.Helper()
	e := westEndpoint(t, 0, "x")
	e.Name = id + "-" + e.Spec.CableName
	e.Spec.ClusterID = id
	signAs(t, id, e)
	return e
}

// stored returns an object as an API server has it.
func stored(t *testing.T, o client.Object) string {
	t.Helper()
	o.SetUID(types.UID("0c7d8a5e-5f0e-4f6f-9b7a-2f1d7c3e9a11"))
	o.SetResourceVersion("1234567")
	o.SetCreationTimestamp(metav1.NewTime(time.Unix(1_790_000_000, 0)))
	o.SetOwnerReferences(
		[]metav1.OwnerReference{
			{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role", Name: "cluster-spoke-0001", UID: o.GetUID()},
		},
	)
	now := metav1.NewTime(time.Unix(1_790_000_000, 0))
	o.SetManagedFields(
		[]metav1.ManagedFieldsEntry{
			{
				Manager:    "subctl",
				Operation:  "Update",
				APIVersion: "submariner.io/v1",
				Time:       &now,
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:submariner.io/signature":{}},"f:labels":{".":{},"f:submariner-io/clusterID":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"0c7d8a5e-5f0e-4f6f-9b7a-2f1d7c3e9a11\"}":{}}},"f:spec":{".":{},"f:backend":{},"f:cable_name":{},"f:cluster_id":{},"f:hostname":{},"f:nat_enabled":{},"f:private_ip":{},"f:public_ip":{},"f:subnets":{}}}`),
			},
		},
	)
	text, err := json.Marshal(o)
	require.NoError(t, err)
	return string(text)
}

// BenchmarkPolls measures what the lists of a hub in 1,000 clustersets take while nothing happens.
func BenchmarkPolls(b *testing.B) {
	server := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestListServer$")
	server.Env = append(os.Environ(), listServerEnv+"=1")
	in, err := server.StdinPipe()
	require.NoError(b, err)
	out, err := server.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, server.Start())
	b.Cleanup(func() { _ = in.Close(); _ = server.Wait() })
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		if at, ok := strings.CutPrefix(lines.Text(), "server "); ok {
			url = at
		}
	}
	kinds := Kinds()
	c, hangUp, err := watchClient(&rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, kinds)
	require.NoError(b, err)
	defer hangUp()
	e := New(Config{})
	polled := 1000 - MostWatched()
	var sides []side
	for i := range polled {
		s := e.side(Set{Name: fmt.Sprintf("set-%04d", i)}, c, "submariner-k8s-broker-set-0001")
		for _, m := range s.mirrors { // the first round decodes everything
			_, again := m.poll(b.Context())
			require.False(b, again)
		}
		sides = append(sides, s)
	}
	for b.Loop() {
		var cpu measure.Values
		for range measure.Times(3) {
			seconds := 0.0
			for _, all := range []bool{true, false} { // two rounds
				seconds += measure.CPU(b, func() {
					_ = kube.ForEach(sides, func(_ int, s side) error { // some at a time, as rounds does
						s.poll(b.Context(), rate.NewLimiter(rate.Inf, 1), all)
						return nil
					})
				})
			}
			cpu = append(cpu, 100*seconds/(2*period.Seconds()))
		}
		measure.Record(
			b,
			measure.AtMost("hub with 1,000 two-member clustersets: lists while nothing happens, CPU time, of one core",
				cpu, 5, "%"),
		)
	}
	for _, s := range sides {
		_, known, err := s.mirrors[0].read()
		require.True(b, known)
		require.NoError(b, err)
	}
}
