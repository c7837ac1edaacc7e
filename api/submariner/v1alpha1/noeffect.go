package v1alpha1

// WithoutEffect returns s without the settings that have no effect in this version, which the
// CRD refuses: an earlier version stored them.
func (s SubmarinerSpec) WithoutEffect() SubmarinerSpec {
	s.Broker = ""
	s.AirGappedDeployment = false
	s.BrokerK8sApiServerToken = ""
	s.CeIPSecPSK = ""
	s.CeIPSecIKEPort = 0
	s.ClustersetIPCIDR = ""
	s.ClustersetIPEnabled = false
	s.LoadBalancerEnabled = false
	s.CustomDomains = nil
	s.NodeSelector = nil
	return s
}
