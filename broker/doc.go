// Package broker is where clusters meet: the objects of a broker, the join file that invites
// a cluster, and the identity and rights of each member. Package exchange copies objects
// between the broker and its members; package trust has what is signed.
//
// A broker consists of namespaces, custom resources, RBAC and admission policies on the API
// server of some cluster. No pod runs there, and no secret that clusters share is stored
// there: the pre-shared key and the administrator's signing key are in the join file, and the
// broker has the fingerprint of the one and the public half of the other.
//
// The package does not know flags, kubeconfigs or kernels: packages cmd and agent do.
package broker
