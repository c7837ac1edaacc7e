package join

import (
	"fmt"
	"net/netip"
	"net/url"
)

// checkAddress warns of a loopback address of the broker, which other machines cannot reach.
func checkAddress(r request) ([]string, error) {
	u, err := url.Parse(r.file.BrokerURL)
	if err != nil {
		return nil, nil // checked when the join file was read
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, nil
	}
	return []string{fmt.Sprintf("the broker's address, %s, is a loopback address: gateways on other machines cannot reach it; specify another address with --broker-url",
		withoutScheme(r.file.BrokerURL))}, nil
}
