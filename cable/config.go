package cable

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
