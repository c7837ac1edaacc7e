package cable

import "slices"

// Places are the cables of drivers that connect to a limited number of gateways of a cluster
// (MaxGateways). The first gateways have the places.
type Places struct {
	drivers []Driver
	cables  map[cablesTo][]string // cable names
}

// cablesTo identifies the cables of one driver to one cluster.
type cablesTo struct{ driver, cluster string }

// NewPlaces returns Places that are all free. drivers are all drivers that gateways may use.
func NewPlaces(drivers []Driver) Places {
	return Places{drivers: drivers, cables: map[cablesTo][]string{}}
}

// Take takes the place of a cable to a peer. It returns an error if the driver already has cables
// to MaxGateways other gateways of the peer's cluster.
func (p Places) Take(to Cable) error {
	most := to.Driver.Properties().MaxGateways
	if most == 0 {
		return nil
	}
	cables := cablesTo{to.Driver.Name(), to.Cluster}
	switch names := p.cables[cables]; {
	case slices.Contains(names, to.Name):
		return nil
	case len(names) >= most:
		return p.limitError(to.Driver, to.Cluster, names)
	}
	p.cables[cables] = append(p.cables[cables], to.Name)
	return nil
}
