package join

import "fmt"

// checkBroker refuses an API server without a broker.
func checkBroker(r request) ([]string, error) {
	if len(r.broker.Denied) == 0 && r.broker.Broker == nil {
		return nil, fmt.Errorf("there is no broker in namespace %s at %s: create one with subctl deploy-broker",
			r.broker.Namespace, r.broker.URL)
	}
	return nil, nil
}
