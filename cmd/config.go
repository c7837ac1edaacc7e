package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"subctl/internal/words"
)

const configHelp = `What no flag sets is taken from the environment, and then from a file. The flag
--request-timeout, for example, is SUBCTL_REQUEST_TIMEOUT in the environment and the key
request-timeout in the file, which counts for all commands that have the flag. The file is
$SUBCTL_CONFIG or ~/.config/subctl/config.yaml, and need not exist. --output can be set by
a flag only.`

// config is the environment and the configuration file. It fills in flags that
// the command line leaves open, so that commands know of flags only; nothing
// else reads the environment.
type config struct {
	// flags are the names of all flags of all commands, which are what the file
	// may hold.
	flags []string
}

// apply sets the flags of c that the command line left open: from the
// environment or, failing that, from the file.
func (f config) apply(c *cobra.Command) error {
	v := viper.NewWithOptions(viper.KeyDelimiter("\x00")) // a key is a flag's name, whatever it contains
	v.SetEnvPrefix("subctl")
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if err := f.read(v); err != nil {
		return err
	}
	var errs []error
	var said []pflag.Value // by the command line, under whatever name: --kubecontext is --context
	c.Flags().Visit(func(flag *pflag.Flag) { said = append(said, flag.Value) })
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		if slices.Contains(said, flag.Value) || !configurable(flag) || !v.IsSet(flag.Name) {
			return
		}
		for _, value := range values(v, flag) {
			if err := c.Flags().Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", source(v, flag.Name), err))
			}
		}
	})
	return errors.Join(errs...)
}

// read reads the file, if there is one, and refuses keys that are no flag of any
// command: a misspelt key would silently do nothing.
func (f config) read(v *viper.Viper) error {
	path, optional := os.Getenv("SUBCTL_CONFIG"), false
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil // without a home there is no file in it
		}
		path, optional = filepath.Join(home, ".config", "subctl", "config.yaml"), true
	}
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		if optional && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("reading the configuration file: %w", err)
	}
	var errs []error
	for key := range v.AllSettings() {
		if slices.Contains(f.flags, key) {
			continue
		}
		err := fmt.Errorf("%s: there is no setting %q", path, key)
		if near := words.Nearest(key, f.flags); near != "" {
			err = fmt.Errorf("%w: did you mean %q?", err, near)
		}
		errs = append(errs, err)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// values returns what a flag is to be set to: one value, or several for a flag
// that can be repeated and a list in the file.
func values(v *viper.Viper, flag *pflag.Flag) []string {
	if list, ok := v.Get(flag.Name).([]any); ok {
		out := make([]string, len(list))
		for i, item := range list {
			out[i] = fmt.Sprint(item)
		}
		return out
	}
	return []string{v.GetString(flag.Name)}
}

// source says where the value of a flag came from.
func source(v *viper.Viper, name string) string {
	env := "SUBCTL_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if _, ok := os.LookupEnv(env); ok {
		return env
	}
	return v.ConfigFileUsed() + ": " + name
}

// configurable reports whether a flag may come from the environment or the file.
// How to print may not: it is another matter for each command, and for each script
// that reads it.
func configurable(flag *pflag.Flag) bool {
	return flag.Name != "help" && flag.Name != "output" && !flag.Hidden
}

// allFlags returns the names of the flags of root and all its commands, sorted.
func allFlags(root *cobra.Command) []string {
	var names []string
	each(root, func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.LocalFlags(), c.PersistentFlags()} {
			set.VisitAll(func(flag *pflag.Flag) {
				if configurable(flag) {
					names = append(names, flag.Name)
				}
			})
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}
