package join

import "fmt"

// checkBroker refuses an API server without a broker.
func checkBroker(r request) ([]string, error) {
	if len(r.broker.Denied) == 0 && r.broker.Broker == nil {
		return nil, fmt.Errorf("there is no broker in namespace %s at %s: create one with subctl deploy-broker", r.broker.Namespace, r.broker.URL)
	}
	return nil, nil
}

// checkGlobalnet warns of a broker whose globalnet this version does not program.
func checkGlobalnet(r request) ([]string, error) {
	if !r.broker.Broker.Spec.GlobalnetEnabled {
		return nil, nil
	}
	return []string{"the broker has globalnet enabled, which this version does not implement: clusters are connected only if their networks do not overlap"}, nil
}
