package cmd

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"subctl/cluster/join"
	"subctl/internal/printer"
)

// printDryRun prints what join would write: as one JSON object, or as YAML
// documents each of which says where it goes.
func printDryRun(w io.Writer, format printer.Format, d *join.DryRun, j *join.Operation) error {
	if format == printer.JSON {
		return printer.Encode(w, format, d)
	}
	for _, part := range []struct {
		head string
		objs []*unstructured.Unstructured
	}{
		{"broker: created at " + j.Broker.URL, d.Broker},
		{"cluster: applied at " + j.Member.URL, d.Cluster},
	} {
		for _, obj := range part.objs {
			b, err := yaml.Marshal(obj.Object)
			if err != nil {
				return err
			}
			head := part.head
			if obj.GetKind() == "Node" {
				head = "cluster: patched at " + j.Member.URL
			}
			if _, err := fmt.Fprintf(w, "---\n# %s\n%s", head, b); err != nil {
				return err
			}
		}
	}
	return nil
}
