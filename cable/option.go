package cable

import (
	"strconv"
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
