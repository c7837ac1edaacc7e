package exchange

import (
	"fmt"
	"regexp"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/cable"
	"subctl/policy"
)

// Kind is a kind of objects that clusters exchange, with everything that depends on the
// kind. Either Named or Free is set, and the other is nil.
type Kind struct {
	GroupVersion schema.GroupVersion
	Name         string            // of the kind: "Endpoint"
	Resource     string            // "endpoints"
	Noun         string            // what messages call an object: "Endpoint", "cable policy"
	Object       client.Object     // an empty object
	List         client.ObjectList // an empty list of them

	// Fields returns pointers to the fields that are copied, besides the metadata. A later version
	// may append fields: others ignore them, and take them for empty where they are missing.
	Fields func(client.Object) []any

	Named *Named
	Free  *Free

	// Status and SetStatus read and write the status of an object, where the cluster that
	// made the object finds what became of it. Both are nil for kinds without a status.
	Status    func(client.Object) Shared
	SetStatus func(client.Object, Shared)

	// MaxSize is the most bytes of JSON that the metadata and fields of an object may
	// have; more are not copied. SizeVariable measures the fields on the broker, as a
	// variable of its admission policy: see SizeOfMaps and SizeOfLists.
	MaxSize      int
	SizeVariable admissionv1.Variable
	// PerCluster is the maximum number of objects of one cluster in a clusterset, which has as many
	// names for them: see slots.go. Reserved is the number of objects that a cluster gets when it
	// joins, unless it has more to publish, few clusters have joined, or the quota has not much
	// room: see Kind.ReservedFor.
	PerCluster, Reserved int
	// Blank returns an object of a cluster with the least fields that the schema accepts, without
	// metadata: see reserve.go. It is nil if an empty object will do.
	Blank func(id string) client.Object
	// BlankRule is a CEL expression for whether object has no more than that; "" for any object
	// that is small.
	BlankRule string
	// Quota is the maximum number of objects in a clusterset, of all clusters together. Members
	// create none, so that only the holder of a join file can exhaust it.
	Quota int
	// Verbs are the rights of members on the broker; the admission policy limits them to
	// their own objects.
	Verbs []string
}

// Named describes a kind whose objects are named after their cluster. The name of an object
// identifies its owner, and cannot be changed. Every cluster creates its own objects;
// an object that is in several clustersets has one copy in the other clusters.
type Named struct {
	Names NameRule
	// ClusterID returns the field of spec that must be the owner's ID, and IDField is its name in
	// JSON, such as "cluster_id". Both are empty for kinds without that field.
	ClusterID func(client.Object) string
	IDField   string
	// Check returns what else is wrong with an object of the right name, or "". Rules are
	// the part of it that the broker's admission policy checks, too.
	Check func(client.Object) string
	Rules []admissionv1.Validation
	// Stub copies the fields that ClusterID and Check read. It is nil if they read none.
	Stub func(to, from client.Object)
	// Sets returns the field with the clustersets that the reader of an object shares with its
	// owner. It is no statement of the owner: on the broker it is the clusterset of the namespace,
	// and in a copy all those in which the object was found. It is nil for kinds without that
	// field.
	Sets func(client.Object) *[]string
	// Annotations are copied. All other annotations are about one side.
	Annotations []string
	// HasGrant is true for the one kind whose objects carry the grants of their clusters.
	HasGrant bool
	// Networks returns the networks and addresses of an object that the grant of its cluster
	// must cover. It may be nil.
	Networks func(client.Object) []string
	// Namespaces returns the namespaces from which an object exports, which the grant of its
	// cluster must allow. It may be nil.
	Namespaces func(client.Object) []string
	// OwnPace specifies that changes of these objects delay no copies of other kinds, and are not
	// delayed by those: see paces.
	OwnPace bool
	// PerGateway specifies that a cluster has an object for each of its gateways, whose number its
	// grant bounds.
	PerGateway bool
	// Spare reports whether an object gives way to all others where a grant allows fewer than there
	// are, and need not be published. It may be nil.
	Spare func(client.Object) bool
}

// most returns how many objects of a cluster a grant allows.
func (k *Kind) most(g trust.Grant) int {
	if k.Named != nil && k.Named.PerGateway {
		return min(k.PerCluster, g.Gateways)
	}
	return k.PerCluster
}

// hasGrant reports whether the objects of the kind carry the grants of their clusters.
func (k *Kind) hasGrant() bool { return k.Named != nil && k.Named.HasGrant }

// Free describes a kind whose objects have names that people choose. The label
// submarinerv1.ClusterIDLabel of an object identifies its owner, and cannot be changed on the
// broker. Objects may be created on the broker, too, and for one clusterset alone. Every
// clusterset has its own copy in each cluster. Labels and annotations are not copied.
type Free struct {
	// BrokerOnly specifies that only objects of the broker apply: members make none on the
	// broker, and do not copy the objects of other members.
	BrokerOnly bool
	// Canonical rewrites the fields of a copy to their canonical form. It may be nil.
	Canonical func(client.Object)
	// Check returns what is wrong with an object's fields. It may be nil.
	Check func(client.Object) error
	// Digest returns a text that differs if different objects are in force in a cluster; see
	// Status.Digest. It may be nil. Only one kind has it: agents compare Status.Digest with their
	// own digest of that kind.
	Digest func([]client.Object) string
}

// Shared is the part of an object's status about its copies on the broker.
type Shared struct {
	// Sets are the clustersets on whose broker the object is, sorted.
	Sets []string
	// InForce holds the fields as they are on the broker; it is nil if there are none, and for
	// Named kinds.
	InForce    client.Object
	Conditions []metav1.Condition
}

// Table is the kinds that are exchanged. An object may depend on objects of the kinds
// before its own: those are written first, and withdrawn last.
type Table []Kind

// A real Endpoint has about 1 KiB.
const maxSize = 16 << 10

// allVerbs are the rights of a member that publishes objects. It creates none: its objects are
// reserved when it joins. It deletes them when it leaves.
func allVerbs() []string {
	return []string{"get", "list", "watch", "patch", "update", "delete", "deletecollection"}
}

// Kinds returns the table of the kinds that clusters exchange. The quotas are for 1,000 clusters,
// each with a Cluster, up to four gateways and two policies, of up to 64 rules each, and four pages
// of exported Services; and for twice the Clusters, since the Cluster of a cluster that is gone for
// good stays until somebody frees its ID. At MaxSize and MaxProof each, all objects are 469 MiB; as
// real clusters write them, 25 MiB, and about 2.5 times the bytes of their export records. The
// broker's own cable policies count, too. Fewer clusters may have more of them: see
// Kind.ReservedFor.
func Kinds() Table { return Table{cablePolicies(), clusters(), endpoints(), exportedServices()} }

// KindsFrom returns the table of a broker with a setting of whose cable policies apply.
func KindsFrom(from v1alpha1.PoliciesFrom) Table {
	kinds := Kinds()
	for _, k := range kinds {
		if _, ok := k.Object.(*v1alpha1.CablePolicies); ok {
			k.Free.BrokerOnly = from.BrokerOnly()
		}
	}
	return kinds
}

// clusters are named <id>.
func clusters() Kind {
	return Kind{
		GroupVersion: submarinerv1.GroupVersion, Name: "Cluster", Resource: "clusters", Noun: "Cluster",
		Object: &submarinerv1.Cluster{}, List: &submarinerv1.ClusterList{},
		Fields: func(o client.Object) []any {
			s := &o.(*submarinerv1.Cluster).Spec // without the clustersets: see Named.Sets
			return []any{
				&s.ClusterID,
				&s.ColorCodes,
				&s.ServiceCIDR,
				&s.ClusterCIDR,
				&s.GlobalCIDR,
				&s.PublicKey,
				&s.Encryption,
			}
		},
		Named: &Named{
			Names:     NameRule{Prefix: "{id}"},
			Sets:      func(o client.Object) *[]string { return &o.(*submarinerv1.Cluster).Spec.ClusterSets },
			ClusterID: func(o client.Object) string { return o.(*submarinerv1.Cluster).Spec.ClusterID },
			IDField:   "cluster_id",
			Stub: func(to, from client.Object) {
				to.(*submarinerv1.Cluster).Spec.ClusterID = from.(*submarinerv1.Cluster).Spec.ClusterID
			},
			Rules: []admissionv1.Validation{{
				Expression: "(!('cluster_sets' in variables.spec) || variables.spec.cluster_sets.all(s, s == " +
					setExpression + "))",
				MessageExpression: "'in this namespace, spec.cluster_sets of the Cluster ' + variables.name + ' may only be ' + " +
					setExpression,
			}},
			HasGrant: true,
			Networks: func(o client.Object) []string { return o.(*submarinerv1.Cluster).Spec.Announced() },
		},
		MaxSize: maxSize,
		SizeVariable: admissionv1.Variable{
			Name: "clusterSize",
			Expression: SizeOfLists("object.spec", "cluster_cidr", "service_cidr", "global_cidr", "cluster_sets",
				"color_codes"),
		},
		BlankRule:  "size(object.spec.service_cidr) + size(object.spec.cluster_cidr) + size(object.spec.global_cidr) == 0",
		PerCluster: 1, Reserved: 1, Quota: 2000, Verbs: allVerbs(),
		Blank: func(id string) client.Object {
			return &submarinerv1.Cluster{
				Spec: submarinerv1.ClusterSpec{
					ClusterID:   id,
					ServiceCIDR: []string{},
					ClusterCIDR: []string{},
					GlobalCIDR:  []string{},
				},
			}
		},
	}
}

// endpoints are named <id>-submariner-cable-<id>-<address>, where the address consists of
// hexadecimal digits and '-', so that no address holds "submariner-cable".
func endpoints() Kind {
	return Kind{
		GroupVersion: submarinerv1.GroupVersion, Name: "Endpoint", Resource: "endpoints", Noun: "Endpoint",
		Object: &submarinerv1.Endpoint{}, List: &submarinerv1.EndpointList{},
		Fields: func(o client.Object) []any { return []any{&o.(*submarinerv1.Endpoint).Spec} },
		Named: &Named{
			Names:     NameRule{Prefix: "{id}-submariner-cable-{id}-", Rest: hexAddress, RestNoun: "address"},
			ClusterID: func(o client.Object) string { return o.(*submarinerv1.Endpoint).Spec.ClusterID },
			IDField:   "cluster_id",
			Check: func(o client.Object) string {
				e := o.(*submarinerv1.Endpoint)
				if e.Name == e.Spec.ClusterID+"-"+e.Spec.CableName {
					return ""
				}
				return fmt.Sprintf("spec.cable_name is %.200q, but it is not named after that cable", e.Spec.CableName)
			},
			Rules: []admissionv1.Validation{{
				Expression:        "('cable_name' in variables.spec && variables.name == variables.id + '-' + variables.spec.cable_name)",
				MessageExpression: "'the Endpoint ' + variables.name + ' is not named after its spec.cable_name'",
			}},
			Stub: func(to, from client.Object) {
				spec := from.(*submarinerv1.Endpoint).Spec
				to.(*submarinerv1.Endpoint).Spec = submarinerv1.EndpointSpec{
					ClusterID: spec.ClusterID,
					CableName: spec.CableName,
				}
			},
			Networks: func(o client.Object) []string {
				spec := o.(*submarinerv1.Endpoint).Spec
				return slices.Concat(spec.Subnets, spec.AllocatedIPs)
			},
			PerGateway: true,
			Spare: func(o client.Object) bool {
				return o.(*submarinerv1.Endpoint).Spec.BackendConfig[submarinerv1.BackendDrain] == submarinerv1.Standby
			},
		},
		MaxSize: maxSize,
		SizeVariable: admissionv1.Variable{
			Name: "endpointSize",
			Expression: SizeOfLists("object.spec", "subnets", "allocated_ips") + " + " +
				SizeOfMaps("object.spec", "backend_config"),
		},
		BlankRule:  "object.spec.cable_name == '' && size(object.spec.subnets) == 0",
		PerCluster: trust.MaxGateways, Reserved: 4, Quota: 4000, Verbs: allVerbs(),
		Blank: func(id string) client.Object {
			return &submarinerv1.Endpoint{
				Spec: submarinerv1.EndpointSpec{ClusterID: id, Subnets: []string{}, Backend: "none"},
			}
		},
	}
}

var hexAddress = regexp.MustCompile("^[0-9a-f-]+$")

// exportedServices are named <id>-services-<number of the page>: see v1alpha1.ExportedServicesName.
func exportedServices() Kind {
	spec := func(o client.Object) *v1alpha1.ExportedServicesSpec { return &o.(*v1alpha1.ExportedServices).Spec }
	return Kind{
		GroupVersion: v1alpha1.GroupVersion, Name: "ExportedServices", Resource: "exportedservices",
		Noun:   "page of exported Services",
		Object: &v1alpha1.ExportedServices{}, List: &v1alpha1.ExportedServicesList{},
		Fields: func(o client.Object) []any { return []any{spec(o)} },
		Named: &Named{
			Names:     NameRule{Prefix: "{id}-services-", Rest: pageNumber, RestNoun: "page"},
			ClusterID: func(o client.Object) string { return spec(o).ClusterID },
			IDField:   "clusterID",
			Check:     func(o client.Object) string { return checkPage(spec(o)) },
			Stub: func(to, from client.Object) {
				*spec(to) = v1alpha1.ExportedServicesSpec{ClusterID: spec(from).ClusterID, Pages: spec(from).Pages}
			},
			Networks:   func(o client.Object) []string { return addressesOf(spec(o)) },
			Namespaces: func(o client.Object) []string { return namespacesOf(spec(o)) },
			OwnPace:    true,
		},
		Status: func(o client.Object) Shared {
			status := &o.(*v1alpha1.ExportedServices).Status
			return Shared{Sets: status.ClusterSets, Conditions: status.Conditions}
		},
		SetStatus: func(o client.Object, s Shared) {
			o.(*v1alpha1.ExportedServices).Status = v1alpha1.ExportedServicesStatus{
				ClusterSets: s.Sets,
				Conditions:  s.Conditions,
			}
		},
		MaxSize: maxSize,
		SizeVariable: admissionv1.Variable{
			Name:       "pageSize",
			Expression: optional("object.spec", "services", sizeOfServices),
		},
		BlankRule:  "!has(object.spec.services) || size(object.spec.services) == 0",
		PerCluster: v1alpha1.MaxExportPages, Reserved: 8, Quota: 4000, Verbs: allVerbs(),
		Blank: func(id string) client.Object {
			return &v1alpha1.ExportedServices{Spec: v1alpha1.ExportedServicesSpec{ClusterID: id}}
		},
	}
}

// pageNumber matches the numbers of pages: 0 to one less than v1alpha1.MaxExportPages.
var pageNumber = regexp.MustCompile("^([0-9]|[1-5][0-9]|6[0-3])$")

// cablePolicies are copied with their drivers under canonical names.
func cablePolicies() Kind {
	return Kind{
		GroupVersion: v1alpha1.GroupVersion, Name: "CablePolicies", Resource: "cablepolicies", Noun: "cable policy",
		Object: &v1alpha1.CablePolicies{}, List: &v1alpha1.CablePoliciesList{},
		Fields: func(o client.Object) []any { return []any{&o.(*v1alpha1.CablePolicies).ConnectionPolicies} },
		Free: &Free{
			Canonical: func(o client.Object) {
				rules := o.(*v1alpha1.CablePolicies).ConnectionPolicies
				for i := range rules {
					rules[i].CableDriver = cable.Canonical(rules[i].CableDriver)
				}
			},
			Check: func(o client.Object) error { return policy.Check(o.(*v1alpha1.CablePolicies)) },
			Digest: func(objects []client.Object) string {
				policies := make([]*v1alpha1.CablePolicies, len(objects))
				for i, o := range objects {
					policies[i] = o.(*v1alpha1.CablePolicies)
				}
				return policy.Digest(policies)
			},
		},
		Status: func(o client.Object) Shared {
			status := &o.(*v1alpha1.CablePolicies).Status
			shared := Shared{Sets: status.ClusterSets, Conditions: status.Conditions}
			if len(status.Rules) > 0 {
				shared.InForce = &v1alpha1.CablePolicies{ConnectionPolicies: status.Rules}
			}
			return shared
		},
		SetStatus: func(o client.Object, s Shared) {
			status := v1alpha1.CablePoliciesStatus{ClusterSets: s.Sets, Conditions: s.Conditions}
			if s.InForce != nil {
				status.Rules = s.InForce.(*v1alpha1.CablePolicies).ConnectionPolicies
			}
			o.(*v1alpha1.CablePolicies).Status = status
		},
		MaxSize:      maxSize,
		SizeVariable: admissionv1.Variable{Name: "policySize", Expression: optional("object", "spec", sizeOfRules)},
		BlankRule:    "size(object.spec) == 1 && object.spec[0].name == 'ipsec'",
		PerCluster:   32, Reserved: 4, Quota: 2000, Verbs: allVerbs(),
		Blank: func(string) client.Object { // a reader that does not ignore it must not lift encryption
			return &v1alpha1.CablePolicies{ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "ipsec"}}}
		},
	}
}
