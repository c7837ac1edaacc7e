package drivers_test

import (
	"fmt"
	"strconv"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/vxlan"
	"subctl/dataplane"
)

// toy is a sixth driver, made as CONTRIBUTING.md says and held to the same contract as the
// others. This file is its cable/toy/toy.go.
type toy struct{}

var _ cable.Driver = toy{}

// all is cable/drivers/drivers.go with the toy.
func all() []cable.Driver { return append(drivers.All(), toy{}) }

// These would be in dataplane/numbers.go.
const (
	toyPort      = 4599
	toyDevice    = dataplane.VXLANDevicePrefix + "2000" // and toyVNI
	toyVNI       = 2000
	toyNet       = 250
	toyNexthopID = 0x30
)

const toyPortKey = "toy-port" // of backend_config

var optToyPort = cable.Option{
	Key:     "toyPort",
	Kind:    cable.OptionNumber,
	Default: strconv.Itoa(toyPort),
	Min:     1,
	Max:     65535,
	Doc:     "UDP port of the toy",
}

func (toy) Name() string { return "toy" }

func (toy) Properties() cable.Properties { return cable.Properties{} }

func (toy) Options() []cable.Option { return []cable.Option{optToyPort, cable.OptionMTU} }

func (toy) Lacks(cable.Local) error { return nil }

func (d toy) Advertise(l cable.Local) (map[string]string, error) {
	return map[string]string{toyPortKey: strconv.Itoa(d.port(l))}, nil
}

func (d toy) Refuses(l cable.Local, p cable.Peer) error {
	port, err := p.Port(toyPortKey, toyPort)
	switch {
	case err != nil:
		return err
	case l.NAT || p.NAT || p.NATed:
		return fmt.Errorf("the path to cluster %s has an address translation, which a toy does not pass", p.Cluster)
	case port != d.port(l):
		return fmt.Errorf("cluster %s has its toy on UDP port %d: set the same toyPort in both", p.Cluster, port)
	}
	return nil
}

// VXLANPort implements cable.OverVXLAN.
func (d toy) VXLANPort(l cable.Local) int { return d.port(l) }

func (toy) Device(cable.Config) string { return toyDevice }

func (toy) Overhead(cable.Local, cable.Peer) int { return dataplane.VXLANOverhead }

func (d toy) Plan(l cable.Local, peers []cable.Peer) (cable.Wiring, error) {
	w := cable.Wiring{State: dataplane.State{}}
	t := vxlan.Tunnel{
		Device: toyDevice,
		VNI:    toyVNI,
		Port:   d.port(l),
		Net:    toyNet,
		Hops:   toyNexthopID,
		Self:   l.Gateway,
		Local:  l.PrivateIP,
		MTU:    l.MTU - dataplane.VXLANOverhead,
	}
	listen := cable.Listen{Proto: "udp", Port: t.Port}
	for _, p := range peers {
		link, err := t.To(w.State, p.Gateway, p.Address, t.Hop(p.Gateway))
		if err != nil {
			return w, fmt.Errorf("planning toy cable to %s: %w", p.Name, err)
		}
		w.Links = append(w.Links, link)
		listen.From = append(listen.From, p.Address)
	}
	w.Listens = []cable.Listen{listen}
	return w, nil
}

func (d toy) port(l cable.Local) int { return l.Settings[d.Name()].Number(optToyPort) }
