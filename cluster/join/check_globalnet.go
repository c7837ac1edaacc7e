package join

// checkGlobalnet warns of a broker whose globalnet this version does not program.
func checkGlobalnet(r request) ([]string, error) {
	if !r.broker.Broker.Spec.GlobalnetEnabled {
		return nil, nil
	}
	return []string{"the broker has globalnet enabled, which this version does not implement: clusters are connected only if their networks do not overlap"}, nil
}
