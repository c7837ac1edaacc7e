package cnf

import (
	"fmt"
	"strings"
)

// Report lists the objects that a plan leaves out, with the reasons. A mistake in an object
// concerns this object alone.
type Report []Line

// Line is about one object.
type Line struct {
	Collection string // module and name of its collection: mwan3/policies
	Name       string
	Message    string // what is wrong, and what to do
	Minor      bool   // the object has all effect that it can have on Linux: a setting of OpenWrt has none
}

// String returns the line as "mwan3/policies balanced: no such interface …".
func (l Line) String() string { return fmt.Sprintf("%s %s: %s", l.Collection, l.Name, l.Message) }

// String returns the lines, each with a newline.
func (r Report) String() string {
	var b strings.Builder
	for _, l := range r {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
