package join

import (
	"fmt"
	"net/netip"
	"net/url"
)

// checkAddress warns of a broker's address that means another machine on every machine.
func checkAddress(r request) ([]string, error) {
	u, err := url.Parse(r.file.BrokerURL)
	if err != nil {
		return nil, nil // reading the join file has checked it
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, nil
	}
	return []string{fmt.Sprintf("the broker's address, %s, is one of this machine alone: gateways elsewhere cannot reach it; say another with --broker-url",
		withoutScheme(r.file.BrokerURL))}, nil
}
