package v1alpha1

// The names of network plugins in SubmarinerStatus.NetworkPlugin. The names are upstream's,
// except Cilium's and Antrea's, which upstream does not know.
const (
	OVNKubernetes  = "OVNKubernetes"
	OpenShiftSDN   = "OpenShiftSDN"
	Canal          = "canal-flannel"
	Calico         = "calico"
	Cilium         = "cilium"
	WeaveNet       = "weave-net"
	Flannel        = "flannel"
	Kindnet        = "kindnet"
	Antrea         = "antrea"
	GenericNetwork = "generic" // none of these
)
