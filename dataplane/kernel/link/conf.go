//go:build linux

package link

import (
	"errors"
	"fmt"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// net.ipv4.conf.DEVICE is read and written by netlink rather than in /proc/sys,
// which is read-only in containers: CAP_NET_ADMIN is then enough, and one message reads the
// settings together with the device. In RTM_GETLINK's answer,
// IFLA_AF_SPEC/AF_INET/IFLA_INET_CONF is an array of 32-bit numbers; to set some,
// it is a list of attributes, each of them one number (inet_fill_link_af and
// inet_set_link_af in the kernel's net/ipv4/devinet.c).
const (
	inetConf = 1 // IFLA_INET_CONF, linux/if_link.h

	confForwarding = 1 // IPV4_DEVCONF_FORWARDING, linux/ip.h; the array starts with this one
	confRPFilter   = 8 // IPV4_DEVCONF_RP_FILTER

	confARPIgnore   = 19 // IPV4_DEVCONF_ARP_IGNORE
	confAcceptLocal = 23 // IPV4_DEVCONF_ACCEPT_LOCAL
)

// readConf returns the settings in the attributes of a device.
func readConf(link []byte) (c dataplane.Conf) {
	for t, spec := range netlink.Attrs(link) {
		if t != unix.IFLA_AF_SPEC {
			continue
		}
		for family, inet := range netlink.Attrs(spec) {
			if family != unix.AF_INET {
				continue
			}
			for t, conf := range netlink.Attrs(inet) {
				if at := func(i int) int { return int(netlink.U32(conf[4*(i-1):])) }; t == inetConf &&
					len(conf) >= 4*confAcceptLocal {
					c.Forwarding = at(confForwarding)
					c.RPFilter = at(confRPFilter)
					c.AcceptLocal = at(confAcceptLocal)
					c.ARPIgnore = at(confARPIgnore)
				}
			}
		}
	}
	return c
}

// putConf appends the settings to a message that sets a device.
func putConf(b []byte, c dataplane.Conf) []byte {
	conf := netlink.PutU32(nil, confForwarding, uint32(c.Forwarding))
	conf = netlink.PutU32(conf, confRPFilter, uint32(c.RPFilter))
	conf = netlink.PutU32(conf, confAcceptLocal, uint32(c.AcceptLocal))
	conf = netlink.PutU32(conf, confARPIgnore, uint32(c.ARPIgnore))
	inet := netlink.PutAttr(nil, inetConf|unix.NLA_F_NESTED, conf)
	spec := netlink.PutAttr(nil, unix.AF_INET|unix.NLA_F_NESTED, inet)
	return netlink.PutAttr(b, unix.IFLA_AF_SPEC|unix.NLA_F_NESTED, spec)
}

// SetConf changes settings of devices. Devices that do not exist are left out.
func (s *Devices) SetConf(names []string, change func(dataplane.Conf) dataplane.Conf) error {
	var errs []error
	for _, name := range names {
		d, err := s.getLink(name, 0)
		if netlink.Gone(err) {
			continue
		}
		if err == nil && d.conf != change(d.conf) {
			msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
			msg.Index = int32(d.index)
			err = s.conn.Change(unix.RTM_SETLINK, 0, putConf(msg.Serialize(), change(d.conf)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("setting the forwarding of device %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
