package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"subctl/internal/words"
)

// Before adds a check of the command line to those that a command makes before it runs.
func Before(c *cobra.Command, check func() error) {
	earlier := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if earlier != nil {
			if err := earlier(c, args); err != nil {
				return err
			}
		}
		if err := check(); err != nil {
			return UsageError(err)
		}
		return nil
	}
}

// TimeLimit gives a command the flag --timeout, which must be positive.
func TimeLimit(c *cobra.Command, limit *time.Duration, standard time.Duration, usage string) {
	c.Flags().DurationVar(limit, "timeout", standard, usage)
	Before(c, func() error {
		if *limit <= 0 {
			return fmt.Errorf("--timeout %v is not positive: specify a duration such as 2m", *limit)
		}
		return nil
	})
}

// FlagError adds the remedy to an error about a flag: the most similar flag if it is unknown,
// the kind of value that it takes, or else where the flags are described.
func FlagError(c *cobra.Command, err error) error {
	if lacks := lackingError(c, err); lacks != nil {
		return lacks
	}
	err = invalidValue(err)
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := words.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w: see %q", err, c.CommandPath()+" --help")
}

// valuesOf describes the values of the types of flags whose own errors are about Go.
var valuesOf = map[string]string{
	"bool":           "true or false",
	"duration":       "a duration, such as 30s, 5m or 24h",
	"int":            "a whole number",
	"stringToString": "KEY=VALUE, and commas between several",
	"int32":          "a whole number",
	"uint":           "a whole number, not negative",
	"uint64":         "a whole number, not negative",
}

// invalidValue returns err, or an error in its place that describes the values of the flag.
func invalidValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) || valuesOf[invalid.GetFlag().Value.Type()] == "" {
		return err
	}
	return fmt.Errorf("%suse %s", strings.TrimSuffix(err.Error(), invalid.Unwrap().Error()),
		valuesOf[invalid.GetFlag().Value.Type()])
}

// CheckContexts returns an error if the command line chooses the clusters twice.
func CheckContexts(c *cobra.Command) error {
	var set []string
	for _, name := range contextFlags {
		if c.Flags().Changed(name) {
			set = append(set, "--"+name)
		}
	}
	if len(set) < 2 {
		return nil
	}
	return fmt.Errorf("%s both choose the clusters: set only one of them", strings.Join(set, " and "))
}
