package join

import "subctl/broker"

// checkAddress warns of an address of the broker that gateways probably cannot use.
func checkAddress(r request) ([]string, error) {
	return broker.AddressWarnings(r.file.BrokerURL), nil
}
