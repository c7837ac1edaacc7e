package join

import (
	"errors"
	"fmt"
	"strings"

	"subctl/cable/drivers"
)

// checkNAT refuses --natt if the policies choose a driver for a pair of this cluster that
// does not work through NAT. It warns if they would do so for a cluster that joins later, and
// of a NAT setting from an earlier join.
func checkNAT(r request) ([]string, error) {
	if !r.NAT || r.invalidDrivers() {
		return nil, nil
	}
	var warnings []string
	var errs []error
	for _, v := range r.verdicts() {
		if d := drivers.Find(v.Driver); d == nil || d.Properties().PassesNAT {
			continue
		}
		where := "--natt"
		remedy := "omit --natt"
		field := r.storedIn("natt")
		if field != "" {
			where = field
			remedy = "specify --natt=false"
		}
		text := fmt.Sprintf(
			"%s: %s does not work through NAT: these drivers work through NAT: %s; choose one with subctl cable-policy add, "+
				"or %s, and make sure that gateways can reach the node addresses of other gateways",
			where,
			v.choice(),
			strings.Join(throughNAT(), ", "),
			remedy,
		)
		if field != "" || len(v.others) == 0 {
			warnings = append(warnings, text)
		} else {
			errs = append(errs, errors.New(text))
		}
	}
	return warnings, errors.Join(errs...)
}

// throughNAT returns the names of the drivers that work through NAT.
func throughNAT() []string {
	var out []string
	for _, d := range drivers.All() {
		if d.Properties().PassesNAT {
			out = append(out, d.Name())
		}
	}
	return out
}
