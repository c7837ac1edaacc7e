// Package trust is the proof that an object comes from the cluster that it names, and that
// this cluster may announce what the object contains. It is pure: it reads no clock and no
// API server.
//
// The administrator has a key pair. Its private half (Key) is in the join file and never on
// the broker; every cluster pins its public half when it joins. With it the administrator
// signs a Grant for each cluster: its ID, the public key with which it signs what it
// publishes, its networks, the number of its gateways, and its clustersets. Other clusters
// learn only of the clustersets that they share: see Published. An Invitation
// is a key of its own, with which one cluster's grant can be signed within bounds. Each
// cluster signs every object that it publishes, as a Statement with a sequence number. So a
// member speaks for itself within its grant, and a broker can withhold objects, but cannot
// forge, alter, redirect or roll back any. A grant ends with a Revocation, which the
// administrator signs, for all clustersets or for one, or with a Leaving, which the cluster
// itself signs.
//
// All signatures are JSON Web Signatures in the compact serialization (RFC 7515), with
// Ed25519 keys (RFC 8037). The header's "typ" states what is signed, so that a signature
// of one type is never taken for another (RFC 8725, section 3.11).
package trust
