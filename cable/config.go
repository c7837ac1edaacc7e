package cable

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/words"
)

// Settings of drivers are YAML, in a ConfigMap or in a cable policy:
//
//	vxlanID: 100        # for every driver that has the setting
//	wireguard:          # for one driver, and for the combined cable with it
//	  keepalive: 25s
//
// A setting under the driver's own name takes precedence, then one under the name of a
// part of the driver, then one under no name. A setting of the gateway as a whole, such as a
// port, has one value for all drivers, whatever name it is under.
//
// Policies come from other clusters: they are untrusted, and messages repeat their content
// only truncated.

// ConfigText returns the YAML in the data of a ConfigMap; "" if there are no settings. It returns
// an error if there are only other keys.
func ConfigText(data map[string]string) (string, error) {
	text := data[v1alpha1.CableCustomConfig]
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(data)),
		func(k string) bool { return k == v1alpha1.CableCustomConfig })
	switch _, ok := data[v1alpha1.CableCustomConfig]; {
	case len(others) == 0 || strings.TrimSpace(text) != "":
		return text, nil
	case ok:
		return "", fmt.Errorf("the key %s is empty, but there are other keys (%s): indent the settings below it",
			v1alpha1.CableCustomConfig, list(others))
	}
	return "", fmt.Errorf("the key %s is missing: found only %s", v1alpha1.CableCustomConfig, list(others))
}

// ParseConfig parses a cluster's settings, and returns those of each known driver, by name.
// The error contains all mistakes, each with its line, key, value and the valid values.
func ParseConfig(text string, known []Driver) (map[string]Config, error) {
	r, err := readConfig(text, known)
	if err != nil {
		return nil, err
	}
	r.checkKeys(nil)
	out := map[string]Config{}
	for _, d := range known {
		out[d.Name()] = r.settings(d)
	}
	return out, r.err()
}

// ParsePolicyConfig parses the settings of a cable policy, and returns those of driver d,
// one of the known drivers; nil if there are none. Settings under the name of another driver
// are only validated. Settings of the gateway as a whole are an error.
func ParsePolicyConfig(text string, d Driver, known []Driver) (Config, error) {
	r, err := readConfig(text, known)
	if err != nil {
		return nil, err
	}
	r.checkKeys(d)
	c := r.settings(d)
	if err := r.err(); err != nil || len(c) == 0 {
		return nil, err
	}
	return c, nil
}

// FormatConfig formats settings by driver as YAML that ParseConfig accepts; "" if there are
// none.
func FormatConfig(settings map[string]Config) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		for i, key := range slices.Sorted(maps.Keys(settings[name])) {
			if i == 0 {
				fmt.Fprintf(&b, "%s:\n", name)
			}
			fmt.Fprintf(&b, "  %s: %q\n", key, settings[name][key])
		}
	}
	return b.String()
}

// With returns the settings in c, overridden by the settings in over.
func (c Config) With(over Config) Config {
	out := Config{}
	maps.Copy(out, c)
	maps.Copy(out, over)
	return out
}

// Check returns an error if c, which need not come from ParseConfig, contains settings that
// driver d does not have, or invalid values.
func (c Config) Check(d Driver) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(c)) {
		o, ok := findOption(key, []Driver{d})
		if !ok {
			errs = append(errs, fmt.Errorf("%s has no setting %s", d.Name(), quoted(key)))
		} else if _, err := o.parse(c[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", key, quoted(c[key]), err))
		}
	}
	return errors.Join(errs...)
}

// CheckPorts returns an error if two of the offered drivers, with their settings, would use
// the same UDP port of the gateway, or if one uses a port of dataplane.FixedPorts.
func CheckPorts(settings map[string]Config, offered []Driver) error {
	taken := maps.Clone(dataplane.FixedPorts)
	var errs []error
	seen := map[string]bool{} // a combined cable has the ports of its parts
	for _, d := range offered {
		for _, o := range d.Options() {
			if seen[o.Key] || o.PerPair || !strings.HasSuffix(o.Key, "Port") {
				continue
			}
			seen[o.Key] = true
			port := settings[d.Name()].Number(o)
			if by, ok := taken[port]; ok {
				errs = append(
					errs,
					fmt.Errorf("%s: UDP port %d is already used by %s: use another, from %d to %d", o.Key, port, by,
						o.Min, o.Max),
				)
				continue
			}
			taken[port] = o.Key
		}
	}
	return errors.Join(errs...)
}

// checkKeys validates all entries. It reports unknown settings, settings of the gateway as a
// whole that occur in a policy or with two values, and invalid values. policy is the driver
// of the policy; nil if the settings do not come from a policy.
func (r *configReader) checkKeys(policy Driver) {
	gateway := map[string]setting{}
	for _, s := range r.entries {
		scope := r.known
		switch {
		case s.driver != "":
			scope = slices.DeleteFunc(slices.Clone(r.known), func(d Driver) bool { return d.Name() != s.driver })
		case policy != nil:
			scope = []Driver{policy}
		}
		o, ok := findOption(s.key, scope)
		switch before, twice := gateway[s.key]; {
		case !ok:
			r.mistake(s.line, "%s", r.unknown(s, scope))
		case o.PerPair:
			r.check(s, o)
		case policy != nil:
			r.mistake(s.line,
				"%s applies to the gateway as a whole and cannot be set by a policy: set it in the ConfigMap of the cluster (Submariner.spec.cableDriverCustomConfig)",
				s.name())
		case twice && before.text != s.text:
			r.mistake(s.line, "%s %s: line %d sets it to %s, but it has one value for all cables", s.name(),
				quoted(s.text), before.line, quoted(before.text))
		default:
			gateway[s.key] = s
			r.check(s, o)
		}
	}
}

// unknown returns the message for a key that no driver of the scope has.
func (r *configReader) unknown(s setting, scope []Driver) string {
	var keys []string
	for _, d := range scope {
		for _, o := range d.Options() {
			keys = append(keys, o.Key)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	what := "no cable driver has it"
	if len(scope) == 1 {
		what = fmt.Sprintf("%s has no such setting", scope[0].Name())
	}
	if near := words.Nearest(s.key, keys); near != "" {
		return fmt.Sprintf("%s: %s: did you mean %s?", s.name(), what, near)
	}
	for _, d := range r.known {
		if _, ok := findOption(s.key, []Driver{d}); ok && len(scope) == 1 {
			return fmt.Sprintf("%s: %s, but %s has it: use one of %s", s.name(), what, d.Name(), list(keys))
		}
	}
	return fmt.Sprintf("%s: %s: use one of %s", s.name(), what, list(keys))
}

// settings returns the settings that apply to a driver.
func (r *configReader) settings(d Driver) Config {
	c := Config{}
	for rank := range 3 {
		for _, s := range r.entries {
			o, ok := findOption(s.key, []Driver{d})
			if !ok || s.rank(d, o) != rank {
				continue
			}
			if v, err := o.parse(s.text); err == nil {
				c[s.key] = v
			}
		}
	}
	return c
}

// rank returns the precedence of a setting for a driver; negative if it does not apply.
func (s setting) rank(d Driver, o Option) int {
	switch {
	case s.driver == d.Name():
		return 2
	case slices.Contains(d.Properties().Parts, s.driver):
		return 1
	case s.driver == "" || !o.PerPair:
		return 0
	}
	return -1
}

// check reports an invalid value of a setting.
func (r *configReader) check(s setting, o Option) {
	if _, err := o.parse(s.text); err != nil {
		r.mistake(s.line, "%s %s: %v", s.name(), quoted(s.text), err)
	}
}

// findOption returns the option of a key, from the first driver that has it.
func findOption(key string, drivers []Driver) (Option, bool) {
	for _, d := range drivers {
		for _, o := range d.Options() {
			if o.Key == key {
				return o, true
			}
		}
	}
	return Option{}, false
}

// Limits of the settings, which come from other clusters: far more than all options of all
// drivers need.
const (
	maxConfig   = 64 << 10 // bytes
	maxSettings = 256
)

// configReader holds parsed settings.
type configReader struct {
	known   []Driver
	entries []setting
	errs    []error
}

// setting is a parsed setting.
type setting struct {
	driver string // the driver under whose name it is; empty if it is under none
	key    string
	text   string // value
	line   int    // counted from 1
}

// name returns the name of the setting in messages.
func (s setting) name() string {
	if s.driver == "" {
		return clip(s.key)
	}
	return s.driver + "." + clip(s.key)
}

// readConfig parses settings. It returns an error if the text is not a YAML mapping or exceeds
// the limits; mistakes in single settings are in errs.
func readConfig(text string, known []Driver) (*configReader, error) {
	r := &configReader{known: known}
	if len(text) > maxConfig {
		return nil, fmt.Errorf("the settings of cable drivers have %d bytes: at most %d are accepted", len(text),
			maxConfig)
	}
	decoder := yaml.NewDecoder(bytes.NewBufferString(text))
	var doc, more yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return r, nil // empty, or comments only
	case err != nil:
		return nil, notYAML(err)
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("line %d: a second YAML document starts: write all settings into one document",
			more.Line)
	case !errors.Is(err, io.EOF):
		return nil, notYAML(err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return r, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: settings of cable drivers must be a YAML mapping (KEY: VALUE), not %s",
			root.Line, kindOf(root))
	}
	if r.section("", root); len(r.entries)+len(r.errs) > maxSettings {
		return nil, fmt.Errorf("there are more than %d settings of cable drivers", maxSettings)
	}
	return r, nil
}

// section reads the settings in m, which is under the name of a driver or, if it is empty, under
// none.
func (r *configReader) section(driver string, m *yaml.Node) {
	lines := map[string]int{}
	for i := 0; i+1 < len(m.Content) && len(r.entries)+len(r.errs) <= maxSettings; i += 2 {
		k := m.Content[i]
		v := m.Content[i+1]
		s := setting{driver: driver, key: k.Value, text: v.Value, line: k.Line}
		if k.Kind != yaml.ScalarNode || k.Value == "" || k.Tag == "!!merge" {
			r.mistake(k.Line, "a key must be the name of a setting or of a cable driver")
			continue
		}
		named := r.driver(k.Value)
		name := cmp.Or(named, k.Value)
		if first, twice := lines[name]; twice {
			r.mistake(k.Line, "%s is already on line %d", s.name(), first)
			continue
		}
		lines[name] = k.Line
		switch {
		case driver == "" && named != "" && v.Kind == yaml.MappingNode:
			r.section(named, v)
		case driver == "" && named != "" && v.Tag == "!!null": // everything below it is commented out
		case driver == "" && named != "":
			r.mistake(k.Line, "%s is a cable driver: write its settings below it, indented, one per line", s.name())
		case driver == "" && v.Kind == yaml.MappingNode:
			_, err := FindDriver(k.Value, r.known)
			r.mistake(k.Line, "%v", err)
		case v.Kind != yaml.ScalarNode:
			r.mistake(k.Line, "%s takes a single value, not %s", s.name(), kindOf(v))
		case v.Tag == "!!null":
			r.mistake(k.Line, "%s has no value: specify one, or remove the line for the default", s.name())
		default:
			r.entries = append(r.entries, s)
		}
	}
}

// driver returns the canonical name of a driver; empty if there is none.
func (r *configReader) driver(name string) string {
	if d, err := FindDriver(name, r.known); err == nil {
		return d.Name()
	}
	return ""
}

// mistake adds an error for a line.
func (r *configReader) mistake(line int, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...)))
}

// err returns all mistakes, joined.
func (r *configReader) err() error { return errors.Join(r.errs...) }

func notYAML(err error) error {
	return fmt.Errorf("not YAML: %s", clip(strings.TrimPrefix(err.Error(), "yaml: ")))
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	return "a single value"
}
