package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CheckEmpty returns an error about each flag of the command line with an empty value. A script
// passes one if a variable is not set, and means neither the default nor, with --context, the
// current cluster.
func CheckEmpty(c *cobra.Command) error {
	var errs []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && isEmpty(f) {
			errs = append(errs, emptyError("--"+f.Name))
		}
	})
	return errors.Join(errs...)
}

// emptyError returns the error about a setting without a value. It does not recommend to omit the
// setting: the default may be another cluster than the one that the user means, or all clusters.
func emptyError(setting string) error {
	return fmt.Errorf(`%s is empty: specify a value (is a variable not set?)`, setting)
}

// isEmpty reports whether a flag was set to an empty text, or to a list with nothing, or with an
// empty text, in it.
func isEmpty(f *pflag.Flag) bool {
	switch list, isList := f.Value.(pflag.SliceValue); {
	case isList:
		return len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
	case f.Value.Type() == "stringToString":
		return f.Value.String() == "[]"
	}
	return f.Value.String() == ""
}
