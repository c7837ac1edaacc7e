package mesh

import (
	"fmt"

	"subctl/cable"
	"subctl/cable/drivers"
)

// places returns the places that the wanted cables have taken.
func (c Cables) places() cable.Places {
	p := cable.NewPlaces(drivers.All())
	for _, w := range c.Wanted {
		_ = p.Take(w) // connect has found that it is free
	}
	return p
}

// notNeeded is the reason why a pair has no cable while one of its gateways is not in service, and
// need not have one.
type notNeeded struct{ error }

// place takes the place of a cable. A driver that connects to a limited number of gateways of a
// cluster connects to the active one, and not to or from a standby, or to a gateway that has left
// its role to another one. The pair gets its cable when both gateways are active.
func (c *chooser) place(made cable.Cable) error {
	if made.Driver.Properties().MaxGateways > 0 && (made.Drain == cable.Standby || c.snapshot.Standing.Standby()) {
		return notNeeded{fmt.Errorf("%s connects to the active gateway of a cluster only", made.Driver.Name())}
	}
	err := c.places.Take(made)
	if err != nil && made.Drain != cable.InService {
		return notNeeded{err}
	}
	return err
}
