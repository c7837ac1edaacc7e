package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
)

// This file compares objects with the statements that are signed: see trust.Statement. A
// statement has the object's fields, not a digest of them, so that a reader which does not know
// a field of a later version compares the others.

// Sign sets the signature of an object as the broker holds it: submarinerv1.SignatureAnnotation.
// An object of a cluster is signed with the cluster's key, and set is empty if the object is for
// all clustersets of the cluster. An object that is made on the broker is signed with the
// administrator's key, and set is the clusterset in whose namespace it is. sequence must be
// greater than the sequence of every earlier signature of an object of that name; milliseconds
// since 1970 are.
func (t Table) Sign(o client.Object, key trust.Key, set string, sequence int64) error {
	k, err := t.Of(o)
	if err != nil {
		return err
	}
	s, err := k.statement(o, set)
	if err != nil {
		return err
	}
	s.Sequence = sequence
	token, err := key.SignStatement(s)
	if err != nil {
		return fmt.Errorf("signing %s %s: %w", k.Noun, o.GetName(), err)
	}
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[submarinerv1.SignatureAnnotation] = token
	o.SetAnnotations(annotations)
	return nil
}

// Verify returns the statement of an object as the broker holds it. It is an error if the object
// is not signed with the key, or was altered since.
func (t Table) Verify(o client.Object, key trust.PublicKey) (trust.Statement, error) {
	k, err := t.Of(o)
	if err != nil {
		return trust.Statement{}, err
	}
	s, err := key.Statement(o.GetAnnotations()[submarinerv1.SignatureAnnotation])
	if err != nil {
		return trust.Statement{}, err
	}
	return s, k.differs(o, o.GetName(), s)
}

// RefusedPolicies returns why the members of a clusterset refuse policies, by their index. It
// considers the policies, the Clusters of the clusterset, and the administrator's public key, as
// the Broker object has it: it finds nothing without one. Members refuse also what is older than
// something that they have seen.
func RefusedPolicies(
	policies []v1alpha1.CablePolicies,
	clusters []submarinerv1.Cluster,
	set, administrator string,
) map[int]string {
	key, err := trust.ParsePublic(administrator)
	if err != nil {
		return nil // the members have pinned no key either
	}
	grants := map[string]string{}
	out := map[int]string{}
	for i := range clusters {
		grants[submarinerv1.MakerOf(&clusters[i],
			clusters[i].Spec.ClusterID)] = clusters[i].Annotations[submarinerv1.GrantAnnotation]
	}
	for i := range policies {
		maker := submarinerv1.MakerOf(&policies[i], submarinerv1.BrokerID)
		if err := Kinds().checkProof(&policies[i], key, set, maker, grants[maker]); err != nil {
			out[i] = err.Error()
		}
	}
	return out
}

// checkProof returns why members refuse an object in a clusterset of the broker, as far as the
// object and the grant of its maker show; nil if they do not. grant is the token in the maker's
// Cluster.
func (t Table) checkProof(o client.Object, administrator trust.PublicKey, set, maker, grant string) error {
	key := administrator
	if maker != submarinerv1.BrokerID {
		g, err := administrator.Grant(grant)
		switch {
		case grant == "":
			return errors.New(noCluster(set, maker))
		case err != nil:
			return err
		case g.Cluster != maker:
			return fmt.Errorf("its grant is of cluster %.70q", g.Cluster)
		case !g.IsIn(set):
			return errors.New(notInSet(set, maker))
		}
		key = g.Key
	}
	s, err := t.Verify(o, key)
	if err == nil && s.Set != "" && s.Set != set {
		err = fmt.Errorf("it is signed for clusterset %.70q", s.Set)
	}
	return err
}

// statement returns what an object states, without a sequence number.
func (k *Kind) statement(o client.Object, set string) (trust.Statement, error) {
	labels, annotations := k.statedMetadata(o)
	fields, err := json.Marshal(k.Fields(k.canonical(o)))
	if err != nil {
		return trust.Statement{}, fmt.Errorf("encoding %s %s: %w", k.Noun, o.GetName(), err)
	}
	return trust.Statement{
		Kind:        k.Name,
		Name:        o.GetName(),
		Set:         set,
		Labels:      labels,
		Annotations: annotations,
		Fields:      fields,
	}, nil
}

// differs returns in what an object is not as its owner has signed it; nil if it is. name is the
// object's name on the broker.
func (k *Kind) differs(o client.Object, name string, s trust.Statement) error {
	if s.Kind != k.Name || s.Name != name {
		return fmt.Errorf("its signature is of the %.40s %.260s", s.Kind, s.Name)
	}
	stated := k.New()
	stated.SetLabels(s.Labels)
	stated.SetAnnotations(s.Annotations)
	if err := k.decode(s.Fields, stated); err != nil {
		return err
	}
	labels, annotations := k.statedMetadata(o)
	wantLabels, wantAnnotations := k.statedMetadata(stated)
	switch {
	case !maps.Equal(labels, wantLabels):
		return errors.New("its labels were altered after it was signed")
	case !maps.Equal(annotations, wantAnnotations):
		return errors.New("its annotations were altered after it was signed")
	case !k.sameFields(k.canonical(stated), k.canonical(o)):
		return errors.New("it was altered after it was signed")
	}
	return nil
}

// statedMetadata returns the labels and annotations that a statement has: those that are copied,
// and the owner's ID.
func (k *Kind) statedMetadata(o client.Object) (labels, annotations map[string]string) {
	if k.Named != nil {
		return k.namedMetadata(o)
	}
	labels = map[string]string{}
	if id, ok := submarinerv1.OwnerID(o); ok && id != submarinerv1.BrokerID {
		labels[submarinerv1.ClusterIDLabel] = id
	}
	return labels, nil
}

// canonical returns an object with its fields in canonical form; o, if the kind has none.
func (k *Kind) canonical(o client.Object) client.Object {
	if k.Free == nil || k.Free.Canonical == nil {
		return o
	}
	return k.freeCopy(o, "", "", nil)
}

// decode sets the fields of an object to the fields of a statement. Further fields, of a later
// version, are ignored, and fields that an earlier version does not have are empty.
func (k *Kind) decode(fields json.RawMessage, into client.Object) error {
	var values []json.RawMessage
	pointers := k.Fields(into)
	if err := json.Unmarshal(fields, &values); err != nil || len(values) == 0 {
		return errors.New("what it signs is not an object of its kind")
	}
	for i, p := range pointers[:min(len(pointers), len(values))] {
		if err := json.Unmarshal(values[i], p); err != nil {
			return errors.New("what it signs is not an object of its kind")
		}
	}
	return nil
}
