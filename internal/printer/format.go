package printer

import (
	"fmt"
	"slices"
	"strings"
)

// Format is an output format.
type Format string

// The formats.
const (
	Table Format = "table" // for people
	Wide  Format = "wide"  // a table with all columns and no truncated cells
	JSON  Format = "json"
	YAML  Format = "yaml"

	// The formats of a stream of documents, see Stream.
	jsonLine     Format = "json, one line"
	yamlDocument Format = "yaml, one document"
)

// Structured reports whether f is a format for programs, JSON or YAML.
func (f Format) Structured() bool {
	return f == JSON || f == YAML || f == jsonLine || f == yamlDocument
}

// Stream returns the form of f in which documents can follow one another: JSON has one
// document per line, and YAML begins each document with a line "---".
func (f Format) Stream() Format {
	switch f {
	case JSON:
		return jsonLine
	case YAML:
		return yamlDocument
	}
	return f
}

// Flag is the value of a flag that selects a format. It implements pflag.Value,
// so that parsing the command line rejects an unknown format.
type Flag struct {
	format  Format
	choices []Format
}

// NewFlag returns a flag value for choices, the first of which is the default.
func NewFlag(choices ...Format) *Flag { return &Flag{choices[0], choices} }

// Format returns the selected format.
func (f *Flag) Format() Format { return f.format }

// Set selects a format by its name.
func (f *Flag) Set(name string) error {
	if !slices.Contains(f.choices, Format(name)) {
		return fmt.Errorf("use %s", list(f.Choices(), " or "))
	}
	f.format = Format(name)
	return nil
}

// String returns the name of the selected format.
func (f *Flag) String() string { return string(f.format) }

// Type returns the type of the flag's value in the help.
func (f *Flag) Type() string { return "format" }

// Choices returns the names of the valid formats.
func (f *Flag) Choices() []string {
	names := make([]string, len(f.choices))
	for i, c := range f.choices {
		names[i] = string(c)
	}
	return names
}

// Usage returns the help text of the flag.
func (f *Flag) Usage() string { return "output format: " + list(f.Choices(), " or ") }

// list joins names with commas, and the last one with a word.
func list(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + last + names[n]
}
