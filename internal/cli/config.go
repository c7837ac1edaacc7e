package cli

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
	"sigs.k8s.io/yaml"

	"subctl/internal/words"
)

// ConfigHelp describes, for a help text, where the values of flags come from.
const ConfigHelp = `Flags that are not set on the command line are read from the environment, and then from a
configuration file. For example, --request-timeout is SUBCTL_REQUEST_TIMEOUT in the
environment and the key request-timeout in the file. A key in the file applies to all
commands that have the flag. The file is $SUBCTL_CONFIG or ~/.config/subctl/config.yaml, and
need not exist. --output can be set only on the command line.`

// contextFlags choose the clusters of a command. A command line has one of them, and the
// environment and the configuration file then set none.
var contextFlags = []string{"context", "kubecontext", "contexts"}

// Config is the environment and the configuration file. It sets flags that the command line
// does not set, so that commands use only flags. Nothing else reads the environment.
type Config struct {
	flags []string // the names of all flags of all commands: the valid keys of the file
}

// NewConfig returns the configuration of root and all its commands.
func NewConfig(root *cobra.Command) Config { return Config{allFlags(root)} }

// Apply sets the flags of c that the command line does not set, from the environment or
// else from the file.
func (f Config) Apply(c *cobra.Command) error {
	v := viper.NewWithOptions(viper.KeyDelimiter("\x00")) // keys are names of flags, with any characters
	v.SetEnvPrefix("subctl")
	v.SetEnvKeyReplacer(strings.NewReplacer("-", "_"))
	v.AutomaticEnv()
	if err := f.read(v); err != nil {
		return err
	}
	var errs []error
	chosen := slices.ContainsFunc(contextFlags, c.Flags().Changed) // on the command line
	c.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || !configurable(flag) || chosen && slices.Contains(contextFlags, flag.Name) {
			return
		}
		if name := emptyVariable(flag.Name); name != "" {
			errs = append(errs, emptyError(name))
			return
		}
		if !v.IsSet(flag.Name) {
			return
		}
		for _, value := range values(v, flag) {
			if value == "" {
				errs = append(errs, emptyError(source(v, flag.Name)))
			} else if err := c.Flags().Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", source(v, flag.Name), invalidValue(err)))
			}
		}
	})
	return errors.Join(errs...)
}

// read reads the file, if there is one. It refuses keys that are not the name of a flag,
// since a misspelt key would silently have no effect.
func (f Config) read(v *viper.Viper) error {
	path := os.Getenv("SUBCTL_CONFIG")
	optional := false
	if name := emptyVariable("config"); name != "" {
		return emptyError(name)
	}
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil // no home directory, no file
		}
		path = filepath.Join(home, ".config", "subctl", "config.yaml")
		optional = true
	}
	v.SetConfigFile(path)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		if optional && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var syntax viper.ConfigParseError
		if errors.As(err, &syntax) {
			err = fmt.Errorf("%s: %w", path, syntax.Unwrap())
		}
		return fmt.Errorf("reading the configuration file: %w", err)
	}
	errs := emptySettings(path)
	for key := range v.AllSettings() {
		if slices.Contains(f.flags, key) {
			continue
		}
		err := fmt.Errorf("%s: unknown setting %q", path, key)
		if near := words.Nearest(key, f.flags); near != "" {
			err = fmt.Errorf("%w: did you mean %q?", err, near)
		}
		errs = append(errs, err)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// emptySettings returns an error for each key of the file without a value, which viper ignores.
func emptySettings(path string) (errs []error) {
	text, err := os.ReadFile(path)
	settings := map[string]any{}
	if err == nil {
		err = yaml.Unmarshal(text, &settings)
	}
	if err != nil {
		return []error{fmt.Errorf("reading the configuration file: %w", err)}
	}
	for key, value := range settings {
		if value == nil {
			errs = append(errs, emptyError(path+": "+key))
		}
	}
	return errs
}

// values returns the values to set a flag to: several if the file has a list, for a flag
// that can be repeated.
func values(v *viper.Viper, flag *pflag.Flag) []string {
	if list, ok := v.Get(flag.Name).([]any); ok && len(list) > 0 {
		out := make([]string, len(list))
		for i, item := range list {
			out[i] = fmt.Sprint(item)
		}
		return out
	}
	return []string{v.GetString(flag.Name)}
}

// variable returns the name of the variable of a flag in the environment.
func variable(flag string) string {
	return "SUBCTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// emptyVariable returns the name of the variable in the environment that sets a flag to an empty
// text; empty if there is none.
func emptyVariable(flag string) string {
	name := variable(flag)
	if value, set := os.LookupEnv(name); set && value == "" {
		return name
	}
	return ""
}

// source names the origin of the value of a flag.
func source(v *viper.Viper, name string) string {
	if _, ok := os.LookupEnv(variable(name)); ok {
		return variable(name)
	}
	return v.ConfigFileUsed() + ": " + name
}

// configurable reports whether a flag can be set by the environment or the file. --output
// cannot: scripts that parse the output of a command depend on it.
func configurable(flag *pflag.Flag) bool {
	return flag.Name != "help" && flag.Name != "output" && !flag.Hidden
}

// allFlags returns the names of the flags of root and all its commands, sorted.
func allFlags(root *cobra.Command) []string {
	var names []string
	Each(root, func(c *cobra.Command) {
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
