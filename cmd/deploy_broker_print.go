package cmd

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"subctl/internal/kube"
	"subctl/internal/printer"
)

// printObjects prints objects as the API server would be sent them: as YAML
// documents, or as one JSON List.
func printObjects(w io.Writer, s *runtime.Scheme, format printer.Format, objects []client.Object) error {
	list := []*unstructured.Unstructured{}
	for _, obj := range objects {
		u, err := kube.Unstructured(s, obj)
		if err != nil {
			return err
		}
		list = append(list, u)
	}
	if format == printer.JSON {
		return printer.Encode(w, format, map[string]any{"apiVersion": "v1", "kind": "List", "items": list})
	}
	for _, u := range list {
		b, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", b); err != nil {
			return err
		}
	}
	return nil
}
