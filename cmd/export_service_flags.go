package cmd

import (
	"github.com/spf13/cobra"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
)

// exportFlags are the flags of export service that are annotations of the ServiceExport.
type exportFlags struct{ all []*exportFlag }

type exportFlag struct {
	key, name string
	set       bool        // its value
	given     func() bool // on the command line, or as a setting
}

// add gives c the flags.
func (f *exportFlags) add(c *cobra.Command) {
	for _, x := range []struct{ key, name, usage string }{
		{v1alpha1.SpreadAnnotation, "spread", "spread connections over the endpoints of all clusters alike, instead " +
			"of those of the own cluster first"},
		{v1alpha1.DirectAnnotation, "direct", "let DNS answer with the addresses of the exporting clusters, instead " +
			"of one address for all"},
	} {
		one := &exportFlag{key: x.key, name: x.name}
		one.given = func() bool { return c.Flags().Changed(one.name) }
		c.Flags().BoolVar(&one.set, one.name, false, x.usage)
		f.all = append(f.all, one)
	}
}

// apply changes the annotations of an export, and returns what changes.
func (f *exportFlags) apply(export *mcsv1alpha1.ServiceExport) (changes []string) {
	for _, one := range f.all {
		value, exists := export.Annotations[one.key]
		switch {
		case !one.given():
		case one.set && value != "true":
			if export.Annotations == nil {
				export.Annotations = map[string]string{}
			}
			export.Annotations[one.key] = "true"
			changes = append(changes, "set annotation "+one.key+"=true")
		case !one.set && exists:
			delete(export.Annotations, one.key)
			changes = append(changes, "remove annotation "+one.key)
		}
	}
	return changes
}
