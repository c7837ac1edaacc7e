//go:build linux

package link

import (
	"bytes"
	"fmt"
	"net"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vxlan returns d as a plan describes it. If the device has another type, or settings that
// no plan asks for, only the name is set; likewise if it is down, because the kernel has
// then removed all its routes and next hops.
func (s *Devices) vxlan(d *device) (dataplane.VXLAN, error) {
	v, ok := d.link.(*vnl.Vxlan)
	if !ok || !d.up || v.Learning || v.FlowBased || len(v.Group) > 0 {
		return dataplane.VXLAN{Name: d.name}, nil
	}
	var over string
	if v.VtepDevIndex != 0 {
		var err error
		if over, err = s.Name(v.VtepDevIndex); err != nil {
			return dataplane.VXLAN{}, fmt.Errorf("finding the device below %s: %w", d.name, err)
		}
	}
	return dataplane.VXLAN{
		Name:       d.name,
		Dev:        over,
		MAC:        v.HardwareAddr.String(),
		VNI:        v.VxlanId,
		Local:      netlink.Addr(v.SrcAddr),
		Port:       v.Port,
		SourcePort: sourcePort(v),
		MTU:        v.MTU,
		Conf:       d.conf,
	}, nil
}

// putVXLAN changes the device in place if it can: a new device loses everything that
// depends on the old one.
func (s links) putVXLAN(v dataplane.VXLAN) error {
	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return fmt.Errorf("adding device %s: %w", v.Name, err)
	}
	d, err := s.ensure(v.Name, func(d *device) bool { return s.fits(d, v) }, func() error {
		over := 0
		if v.Dev != "" {
			if over, err = s.Index(v.Dev); err != nil {
				return err
			}
		}
		return s.nl.LinkAdd(&vnl.Vxlan{
			LinkAttrs: vnl.LinkAttrs{Name: v.Name, MTU: v.MTU, HardwareAddr: mac},
			VxlanId:   v.VNI, SrcAddr: v.Local.AsSlice(), Port: v.Port, // Learning is off unless asked for
			PortLow: v.SourcePort, PortHigh: portAfter(v.SourcePort), VtepDevIndex: over,
		})
	})
	if err != nil {
		return err
	}
	if bytes.Equal(mac, d.link.Attrs().HardwareAddr) { // setting even the same MAC clears the ARP table
		err = s.setUp(d, v.MTU, v.Conf)
	} else {
		err = s.setUp(d, v.MTU, v.Conf, netlink.PutAttr(nil, unix.IFLA_ADDRESS, mac)...)
	}
	return s.ExplainPort(err, v.Port, "vxlanPort")
}

// fits reports whether d can be changed into v without being recreated.
func (s *Devices) fits(d *device, v dataplane.VXLAN) bool {
	up := *d
	up.up = true
	have, err := s.vxlan(&up)
	return err == nil && have.Dev == v.Dev && have.VNI == v.VNI && have.Local == v.Local && have.Port == v.Port &&
		have.SourcePort == v.SourcePort
}

// sourcePort returns the source port of the outer packets, or 0 if it varies.
func sourcePort(v *vnl.Vxlan) int {
	if v.PortLow == 0 || v.PortHigh != portAfter(v.PortLow) {
		return 0
	}
	return v.PortLow
}

// portAfter returns the end of a range that contains only one port: the kernel excludes the
// end, and an empty range stands for any port (udp_flow_src_port in include/net/udp.h).
func portAfter(port int) int {
	if port == 0 {
		return 0
	}
	return port + 1
}
