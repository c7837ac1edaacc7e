package cmd

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"subctl/cluster/join"
	"subctl/internal/cli"
	"subctl/internal/printer"
)

// maxFields is the number of changed fields that printDifference prints for an object. A
// CustomResourceDefinition of another version differs in hundreds.
const maxFields = 20

// printDifference prints the objects that join would create (+) or change (~), and their
// fields.
func printDifference(w io.Writer, d *join.Difference, op *join.Operation) error {
	var out strings.Builder
	for _, side := range []struct {
		name, url string
		changes   []join.ObjectChange
	}{{"broker", op.Broker.URL, d.Broker}, {"cluster", op.Member.URL, d.Cluster}} {
		fmt.Fprintf(&out, "%s: %s\n", side.name, side.url)
		if len(side.changes) == 0 {
			out.WriteString("  nothing changes\n")
		}
		for _, c := range side.changes {
			mark := "~"
			if c.New {
				mark = "+"
			}
			fmt.Fprintf(&out, "  %s %s\n", mark, c.Object)
			for i, f := range c.Fields {
				if i == maxFields {
					fmt.Fprintf(&out, "      and %d more fields: see -o yaml\n", len(c.Fields)-i)
					break
				}
				fmt.Fprintf(&out, "      %s\n", f)
			}
		}
	}
	if d.Same > 0 {
		fmt.Fprintf(&out, "%d objects stay as they are\n", d.Same)
	}
	if len(op.Plan.Affected) > 0 {
		fmt.Fprintf(&out, "affected clusters: %s\n", strings.Join(op.Plan.Affected, ", "))
	}
	_, err := io.WriteString(w, printer.CleanLines(out.String())) // it quotes the join file and the broker
	return err
}

// printDryRun prints the objects that join would write: as one JSON object, or as YAML
// documents with comments that name their destination.
func printDryRun(w io.Writer, format printer.Format, d *join.DryRun, op *join.Operation) error {
	if format == printer.JSON {
		return printer.Encode(w, format, d)
	}
	err := cli.PrintDocuments(w, "broker: created at "+op.Broker.URL, d.Broker)
	for _, obj := range d.Cluster {
		how := "applied"
		if obj.GetKind() == "Node" {
			how = "patched"
		}
		err = errors.Join(err,
			cli.PrintDocuments(w, "cluster: "+how+" at "+op.Member.URL, []*unstructured.Unstructured{obj}))
	}
	return err
}
