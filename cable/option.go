package cable

import (
	"strconv"
	"time"
)

// Option is a setting of a driver: a key in the YAML that a ConfigMap holds under
// CableCustomConfig.
type Option struct {
	Key  string
	Kind OptionKind
	// Default is what holds where nobody says anything, as a user would write it.
	Default string
	// Min and Max bound numbers; seconds for durations.
	Min, Max int
	// Allowed lists the values of a text; nil leaves it to Check.
	Allowed []string
	// Check says what is wrong with a text; nil accepts any.
	Check func(string) error
	// Form says what Check accepts, as one would say it to a user.
	Form string
	// PerPair says that a policy may set it for some pairs. What belongs to the
	// gateway as a whole, such as a port, can be set for the cluster only.
	PerPair bool
	// Doc says what it does, in one sentence.
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

// Config is the settings of one driver, by key, checked. What is not in it has
// its default.
type Config map[string]string

// text returns the value of an option as a user wrote it.
func (c Config) text(o Option) string {
	if v, ok := c[o.Key]; ok {
		return v
	}
	return o.Default
}

// Number returns the value of an OptionNumber.
func (c Config) Number(o Option) int {
	n, _ := strconv.Atoi(c.text(o)) // checked when it was read; defaults by a test
	return n
}

// Duration returns the value of an OptionDuration.
func (c Config) Duration(o Option) time.Duration {
	text := c.text(o)
	if n, err := strconv.Atoi(text); err == nil {
		return time.Duration(n) * time.Second
	}
	d, _ := time.ParseDuration(text) // checked when it was read
	return d
}

// Bool returns the value of an OptionBool.
func (c Config) Bool(o Option) bool { return c.text(o) == "true" }

// Text returns the value of an OptionText.
func (c Config) Text(o Option) string { return c.text(o) }

// OptionMTU is a setting of every driver.
var OptionMTU = Option{
	Key: "mtu", Kind: OptionNumber, Default: "0", Min: 576, Max: 65535, PerPair: true,
	Doc: "largest packet inside the cable, in bytes; unset: what the path allows",
}
