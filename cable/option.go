package cable

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Option describes a setting of a driver: a key in the YAML of a ConfigMap, under
// CableCustomConfig.
type Option struct {
	Key  string
	Kind OptionKind
	// Default is the default value, in the format in which users write it.
	Default string
	// Min and Max are the inclusive bounds of numbers, and of durations in seconds.
	Min, Max int
	// Allowed lists the valid values of a text; if it is nil, Check decides.
	Allowed []string
	// Check returns an error if a text is invalid. A nil Check accepts any text.
	Check func(string) error
	// Form describes the texts that Check accepts.
	Form string
	// PerPair specifies whether a policy may set the option for some pairs. Settings of the
	// gateway as a whole, such as a port, can be set only for the cluster.
	PerPair bool
	// Doc describes the option, in one sentence.
	Doc string
}

// OptionKind is the type of an Option's values.
type OptionKind uint8

// The kinds of options.
const (
	OptionNumber   OptionKind = iota
	OptionDuration            // "25s", "1h"; a bare number is seconds
	OptionBool
	OptionText
)

// Config holds the settings of one driver, by key. The values are valid. Settings that are
// not in it have their default.
type Config map[string]string

// text returns the value of an option as text.
func (c Config) text(o Option) string {
	if v, ok := c[o.Key]; ok {
		return v
	}
	return o.Default
}

// Number returns the value of an OptionNumber.
func (c Config) Number(o Option) int {
	n, _ := strconv.Atoi(c.text(o)) // validated when it was parsed; a test validates defaults
	return n
}

// Duration returns the value of an OptionDuration.
func (c Config) Duration(o Option) time.Duration {
	text := c.text(o)
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(n) * time.Second
	}
	d, _ := time.ParseDuration(text) // validated when it was parsed
	return d
}

// Bool returns the value of an OptionBool.
func (c Config) Bool(o Option) bool { return c.text(o) == "true" }

// Text returns the value of an OptionText.
func (c Config) Text(o Option) string { return c.text(o) }

// OptionMTU is an option of every driver.
var OptionMTU = Option{
	Key: "mtu", Kind: OptionNumber, Default: "0", Min: 576, Max: 65535, PerPair: true,
	Doc: "maximum MTU of the cable, in bytes; unset: the MTU that the path allows",
}

// maxText is the maximum length of the value of an OptionText, in bytes.
const maxText = 256

// Values describes the valid values of the option, for users.
func (o Option) Values() string {
	switch o.Kind {
	case OptionNumber:
		return fmt.Sprintf("a whole number from %d to %d", o.Min, o.Max)
	case OptionDuration:
		return fmt.Sprintf("whole seconds from %s to %s, such as %s", seconds(o.Min), seconds(o.Max), o.Default)
	case OptionBool:
		return "true or false"
	}
	if len(o.Allowed) > 0 {
		return "one of " + strings.Join(o.Allowed, ", ")
	}
	return o.Form
}

// parse validates a value, and returns it in the form of a Config. The error describes the
// valid values.
func (o Option) parse(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch o.Kind {
	case OptionNumber:
		if n, err := strconv.Atoi(text); err == nil && o.Min <= n && n <= o.Max {
			return strconv.Itoa(n), nil
		}
	case OptionDuration:
		if d, err := parseDuration(text); err == nil && d%time.Second == 0 && o.within(d) {
			return seconds(int(d / time.Second)), nil
		}
	case OptionBool:
		if text == "true" || text == "false" {
			return text, nil
		}
	case OptionText:
		return text, o.checkText(text)
	}
	return "", fmt.Errorf("it must be %s", o.Values())
}

func (o Option) within(d time.Duration) bool {
	return time.Duration(o.Min)*time.Second <= d && d <= time.Duration(o.Max)*time.Second
}

func (o Option) checkText(text string) error {
	switch {
	case o.Allowed != nil && !slices.Contains(o.Allowed, text):
		return fmt.Errorf("it must be %s", o.Values())
	case len(text) > maxText:
		return fmt.Errorf("it must have at most %d bytes", maxText)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("it must consist of printable ASCII characters, on one line")
	case o.Check != nil:
		return o.Check(text)
	}
	return nil
}

// parseDuration parses a duration such as "25s" or "1h30m", or a number of seconds.
func parseDuration(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	return time.ParseDuration(text)
}

// seconds formats a number of seconds, in hours or minutes if that is exact.
func seconds(n int) string {
	switch {
	case n != 0 && n%3600 == 0:
		return strconv.Itoa(n/3600) + "h"
	case n != 0 && n%60 == 0:
		return strconv.Itoa(n/60) + "m"
	}
	return strconv.Itoa(n) + "s"
}

// quoted returns text in quotes for a message, truncated and without control characters.
func quoted(text string) string { return strconv.Quote(clip(text)) }

// clip truncates untrusted text for a message, and replaces unprintable characters.
func clip(text string) string {
	const most = 80
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// list formats untrusted names for a message, truncated and without control characters.
func list(names []string) string {
	const most = 40
	var out []string
	for _, n := range names[:min(len(names), most)] {
		out = append(out, clip(n))
	}
	if len(names) > most {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}
