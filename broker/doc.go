// Package broker is where clusters meet: the objects of a broker, the join file that invites
// a cluster, and the identity and rights of each member. Package exchange copies objects
// between the broker and its members.
//
// A broker consists of namespaces, custom resources, RBAC and admission policies on the API
// server of some cluster. No pod runs there, and no secret that clusters share is stored
// there: the pre-shared key is in the join file, and the broker has its fingerprint.
//
// The package does not know flags, kubeconfigs or kernels: packages cmd and agent do.
package broker
