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
//	vxlanID: 100        # for every driver that knows the key
//	wireguard:          # for one driver, and for the combined cable it is part of
//	  keepalive: 25s
//
// What is under a driver's own name counts most, then what is under the name of a
// part of it, then what is under none. A setting of the gateway as a whole, such as a
// port, has one value for all drivers, wherever it stands.
//
// A policy comes from another cluster: nothing in it is trusted, and nothing of it is
// repeated in full.

// ConfigText returns the YAML of a ConfigMap's data; empty if there are no settings.
func ConfigText(data map[string]string) (string, error) {
	text := data[v1alpha1.CableCustomConfig]
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(k string) bool { return k == v1alpha1.CableCustomConfig })
	switch _, ok := data[v1alpha1.CableCustomConfig]; {
	case len(others) == 0 || strings.TrimSpace(text) != "":
		return text, nil
	case ok:
		return "", fmt.Errorf("the key %s is empty, but there are others: %s: the settings have to be indented below it", v1alpha1.CableCustomConfig, list(others))
	}
	return "", fmt.Errorf("the key %s is missing: there are only %s", v1alpha1.CableCustomConfig, list(others))
}

// ParseConfig reads a cluster's settings of all the known drivers, by their names. The
// error lists every mistake, each with its line, key, value and what it could be.
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

// ParsePolicyConfig reads the settings that a cable policy has for driver d, one of
// the known ones; nil if there are none. What stands under the name of another driver
// is checked, but does not count. Settings of the gateway as a whole are refused.
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

// FormatConfig writes settings by driver in the form that ParseConfig reads; empty if
// there are none.
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

// With returns the settings with others over them.
func (c Config) With(over Config) Config {
	out := Config{}
	maps.Copy(out, c)
	maps.Copy(out, over)
	return out
}

// Check says what is wrong with settings of driver d that did not come from ParseConfig.
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

// CheckPorts says which two of the offered drivers, with their settings, would listen
// on one UDP port of the gateway, or on one that subctl uses for something else.
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
				errs = append(errs, fmt.Errorf("%s: UDP port %d is that of %s too: choose another, from %d to %d", o.Key, port, by, o.Min, o.Max))
				continue
			}
			taken[port] = o.Key
		}
	}
	return errors.Join(errs...)
}

// checkKeys notes which names of drivers and of settings are unknown, and which
// settings are written where they cannot be: those of the gateway in a policy, or
// twice. The driver is that of the policy; nil if there is none.
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
			r.mistake(s.line, "%s is the gateway's as a whole, and cannot be set for some pairs of clusters: set it in the ConfigMap of the cluster (Submariner.spec.cableDriverCustomConfig)", s.name())
		case twice && before.text != s.text:
			r.mistake(s.line, "%s %s: line %d sets it to %s, and the gateway has one for all cables", s.name(), quoted(s.text), before.line, quoted(before.text))
		default:
			gateway[s.key] = s
			r.check(s, o)
		}
	}
}

// unknown complains about a key that no driver of the scope has.
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
			return fmt.Sprintf("%s: %s, but %s has: it has %s", s.name(), what, d.Name(), list(keys))
		}
	}
	return fmt.Sprintf("%s: %s: there are %s", s.name(), what, list(keys))
}

// settings returns what counts for a driver.
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

// rank says how much a setting counts for a driver; negative if not at all.
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

// check notes what is wrong with the value of a setting.
func (r *configReader) check(s setting, o Option) {
	if _, err := o.parse(s.text); err != nil {
		r.mistake(s.line, "%s %s: %v", s.name(), quoted(s.text), err)
	}
}

// findOption returns the option of a key, of the first driver that has it.
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
