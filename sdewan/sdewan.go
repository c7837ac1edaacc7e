// Package sdewan configures network functions (CNFs) by Kubernetes objects, for SD-EWAN: uplinks
// and which traffic takes which of them, a firewall, and IPsec tunnels to other sites.
//
// A CNF is the pods of a Deployment with the label sdewanPurpose. A rule, an object of one of the
// kinds in api/sdewan, has the same label, and is applied to all pods of the CNF with this label in
// its own namespace.
//
// This package has what all parts share, as pure functions: the names of labels and annotations,
// the networks of a CNF, and Kinds, the table of kinds, which converts each rule to the object of
// the REST API that stands for it on a CNF. The parts:
//
//   - rest is the contract of the REST API, which CNFs on OpenWrt serve as well: objects, paths,
//     checks, and a client;
//   - cnf is our own CNF: what the Linux of a pod should hold, planned from the objects that its
//     REST API has received;
//   - controller applies rules to CNFs;
//   - webhook refuses objects that contradict each other, or that their author may not write;
//   - manager runs the controller and the webhooks;
//   - install is what a cluster holds for all this;
//   - view is what people see of it.
//
// Comments call ICN SD-EWAN upstream, whose kinds, labels and REST API these are, and the
// requirement from which this was made the proposal.
package sdewan

// Namespace is the namespace of the controller and the webhooks.
const Namespace = "sdewan-system"

// MaxPods is the number of pods of a CNF whose statuses the controller reads.
const MaxPods = 16

// ControllerName is the name of the controller's Deployment, ServiceAccount, roles and Lease.
const ControllerName = "sdewan-controller"

// Labels and annotations, as the proposal and upstream name them.
const (
	// PurposeLabel is on a Deployment, its pods and the rules that apply to it.
	PurposeLabel = "sdewanPurpose"
	// BucketLabel is the type of a rule, by which permissions are given: basic, app-intent or
	// k8s-service, or any other word.
	BucketLabel = "sdewan-bucket-type"
	// BucketAnnotation is on Roles and ClusterRoles: JSON of type map[string][]string, from
	// resources to types of rules, both with the wildcards * and ?.
	BucketAnnotation = "sdewan-bucket-type-permission"
	// AccountLabel is on the pods of a CNF, and names the Secret whose key "password" is the
	// password of root.
	AccountLabel = "cnf-account-secret"
	// CertLabel is on the pods of a CNF, and names the Secret whose key "ca.crt" verifies the CNF's
	// certificate, which is for <pod IP with - instead of .>.<namespace>.pod.cluster.local.
	CertLabel = "cnf-cert-secret"
	// NetworksAnnotation is on the pods of a CNF: which network each device is attached to, in
	// JSON, as ovn4nfv defines it.
	NetworksAnnotation = "k8s.plugin.opnfv.org/nfn-network"
	// MultusAnnotation is on the pods of a CNF, and makes Multus attach them to networks.
	MultusAnnotation = "k8s.v1.cni.cncf.io/networks"
)
