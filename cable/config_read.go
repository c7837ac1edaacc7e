package cable

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
