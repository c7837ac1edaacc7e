//go:build linux

package kernel

import (
	"bytes"
	"fmt"
	"net"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// vxlan is d as a plan would have it. A device of another type, or set up in a
// way that no plan asks for, is blank but for its name; so is one that is down,
// for the kernel has taken all routes and next hops off it.
func (h *Host) vxlan(d *device) (dataplane.VXLAN, error) {
	v, ok := d.link.(*vnl.Vxlan)
	if !ok || !d.up || v.Learning || v.FlowBased || len(v.Group) > 0 {
		return dataplane.VXLAN{Name: d.name}, nil
	}
	var over string
	if v.VtepDevIndex != 0 {
		var err error
		if over, err = h.name(v.VtepDevIndex); err != nil {
			return dataplane.VXLAN{}, fmt.Errorf("finding the device below %s: %w", d.name, err)
		}
	}
	return dataplane.VXLAN{
		Name: d.name, Dev: over, MAC: v.HardwareAddr.String(), VNI: v.VxlanId, Local: netlink.Addr(v.SrcAddr), Port: v.Port,
		SourcePort: sourcePort(v), MTU: v.MTU, Conf: d.conf,
	}, nil
}

// putVXLAN alters the device in place if it can: a new one loses all that stands on it.
func (s links) putVXLAN(v dataplane.VXLAN) error {
	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return fmt.Errorf("adding device %s: %w", v.Name, err)
	}
	d, err := s.ensure(v.Name, func(d *device) bool { return s.fits(d, v) }, func() error {
		over := 0
		if v.Dev != "" {
			if over, err = s.index(v.Dev); err != nil {
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
	if bytes.Equal(mac, d.link.Attrs().HardwareAddr) { // even to set the same one clears the ARP table
		return s.setUp(d, v.MTU, v.Conf)
	}
	return s.setUp(d, v.MTU, v.Conf, netlink.PutAttr(nil, unix.IFLA_ADDRESS, mac)...)
}

// fits reports whether d can be made v without being made anew.
func (h *Host) fits(d *device, v dataplane.VXLAN) bool {
	up := *d
	up.up = true
	have, err := h.vxlan(&up)
	return err == nil && have.Dev == v.Dev && have.VNI == v.VNI && have.Local == v.Local && have.Port == v.Port && have.SourcePort == v.SourcePort
}

// sourcePort is that of the outer packets; 0 if it varies.
func sourcePort(v *vnl.Vxlan) int {
	if v.PortLow == 0 || v.PortHigh != portAfter(v.PortLow) {
		return 0
	}
	return v.PortLow
}

// portAfter ends a range that begins with a port and has no other: the kernel leaves the
// last one out, and takes an empty range for none (udp_flow_src_port in include/net/udp.h).
func portAfter(port int) int {
	if port == 0 {
		return 0
	}
	return port + 1
}
