package look

import (
	"strconv"

	submarinerv1 "subctl/api/submariner/v1"
)

// Unprogrammed returns the active gateways whose kernels do not hold an object with global
// addresses yet, given its resource version and what they report for its kind. known is false if no
// active gateway reports that.
func (s Site) Unprogrammed(
	version string, of func(submarinerv1.ProgrammedVersions) string,
) (gateways []string, known bool) {
	want, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return nil, false
	}
	for _, gw := range s.Current() {
		if gw.Status.HAStatus != submarinerv1.HAStatusActive || Stale(gw, s.Now) != "" || gw.Status.Programmed == nil {
			continue
		}
		known = true
		if has, err := strconv.ParseUint(of(*gw.Status.Programmed), 10, 64); err != nil || has < want {
			gateways = append(gateways, gw.Name)
		}
	}
	return gateways, known
}
