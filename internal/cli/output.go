package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"subctl/internal/kube"
	"subctl/internal/printer"
	"subctl/internal/progress"
)

// StdStream is the name of a file that stands for stdin or stdout.
const StdStream = "-"

// Output declares the flag -o of c for the formats in choices; the first is the default.
func Output(c *cobra.Command, choices ...printer.Format) *printer.Flag {
	f := printer.NewFlag(choices...)
	c.Flags().VarP(f, "output", "o", f.Usage())
	Complete(c, "output", func(context.Context) ([]string, error) { return f.Choices(), nil })
	return f
}

// PrintDryRun prints the data of --dry-run and marks them: with a line of text, or with a comment
// in YAML. JSON has no comments: the data themselves have a field "dryRun", and a message is
// printed.
func PrintDryRun(io genericiooptions.IOStreams, format printer.Format, print func() error) error {
	const mark = "dry run: nothing is changed"
	if format == printer.YAML {
		if _, err := fmt.Fprintln(io.Out, "#", mark); err != nil {
			return err
		}
		return print()
	}
	if err := print(); err != nil {
		return err
	}
	if format == printer.JSON {
		progress.New(io.ErrOut).Done(mark)
		return nil
	}
	_, err := fmt.Fprintln(io.Out, mark)
	return err
}

// action is an action that a command would take; its JSON is a promise.
type action struct {
	Action string `json:"action"`
	DryRun bool   `json:"dryRun"` // true: it was not done
}

// PrintActions prints what a command would do without --dry-run, one line each or as data.
func PrintActions(io genericiooptions.IOStreams, format printer.Format, lines []string) error {
	return PrintDryRun(io, format, func() error {
		if !format.Structured() {
			for _, line := range lines {
				if _, err := fmt.Fprintln(io.Out, line); err != nil {
					return err
				}
			}
			return nil
		}
		actions := []action{}
		for _, line := range lines {
			actions = append(actions, action{line, true})
		}
		return printer.Encode(io.Out, format, actions)
	})
}

// DryRunOutput declares -o for a command whose only data are those of --dry-run. With another
// use of -o, the command line is wrong.
func DryRunOutput(c *cobra.Command, dryRun *bool, choices ...printer.Format) *printer.Flag {
	Before(c, func() error {
		if c.Flags().Changed("output") && !*dryRun {
			return errors.New("--output requires --dry-run")
		}
		return nil
	})
	return Output(c, choices...)
}

// PrintObjects prints objects as they would be sent to an API server: as YAML documents, or
// as one JSON List. With --dry-run the List has the field "dryRun", which kubectl and -f ignore.
func PrintObjects(w io.Writer, s *runtime.Scheme, format printer.Format, dryRun bool, objects []client.Object) error {
	list := []*unstructured.Unstructured{}
	for _, obj := range objects {
		u, err := kube.Unstructured(s, obj)
		if err != nil {
			return err
		}
		list = append(list, u)
	}
	if format == printer.JSON {
		all := map[string]any{"apiVersion": "v1", "kind": "List", "items": list}
		if dryRun {
			all["dryRun"] = true
		}
		return printer.Encode(w, format, all)
	}
	return PrintDocuments(w, "", list)
}

// PrintDocuments prints objects as YAML documents, each with a comment unless comment is
// empty.
func PrintDocuments(w io.Writer, comment string, list []*unstructured.Unstructured) error {
	if comment != "" {
		comment = "# " + comment + "\n"
	}
	for _, u := range list {
		b, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s%s", comment, b); err != nil {
			return err
		}
	}
	return nil
}
