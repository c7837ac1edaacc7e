package report

import (
	"maps"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
)

// publishEndpoint makes this gateway known.
func publishEndpoint(r *role.Report, m *mesh.Mesh) {
	e := Endpoint(m.Offer)
	if old := role.Find[*submarinerv1.Endpoint](m.Snapshot, e.Name); old == nil || !reflect.DeepEqual(old.Spec,
		e.Spec) {
		r.Apply = append(r.Apply, e)
	}
}

// publishCluster makes this cluster known.
func publishCluster(r *role.Report, m *mesh.Mesh) {
	c := Cluster(m.Membership, m.Snapshot, m.Offer.Settings)
	old := m.Membership.Cluster
	if old == nil || !reflect.DeepEqual(old.Spec, c.Spec) || !members.Labelled(old, c) ||
		old.Annotations[submarinerv1.CableConfigAnnotation] != c.Annotations[submarinerv1.CableConfigAnnotation] ||
		old.Annotations[submarinerv1.PoliciesAnnotation] != c.Annotations[submarinerv1.PoliciesAnnotation] {
		r.Apply = append(r.Apply, c)
	}
}

// Endpoint returns the Endpoint of this node as a gateway.
func Endpoint(o mesh.Offer) *submarinerv1.Endpoint {
	l := o.Local
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: l.Cluster + "-" + l.Name, Namespace: submarinerv1.OperatorNamespace},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: l.Cluster, CableName: l.Name, Hostname: l.Host, PrivateIP: l.PrivateIP.String(),
			NATEnabled: l.NAT, Backend: o.Default.Name(), Subnets: []string{},
			BackendConfig: map[string]string{
				submarinerv1.BackendNATDiscoveryPort: strconv.Itoa(dataplane.NATDiscoveryPort),
				submarinerv1.BackendOctets:           l.Octets.String(),
			},
		},
	}
	var offered []string
	missing := o.Missing()
	for _, d := range o.Drivers {
		config, err := d.Advertise(l)
		if err != nil {
			missing[d.Name()] = err.Error()
			continue
		}
		offered = append(offered, d.Name())
		maps.Copy(e.Spec.BackendConfig, config)
	}
	e.Spec.BackendConfig[submarinerv1.BackendDrivers] = strings.Join(offered, ",")
	if text := cable.FormatMissing(missing); text != "" {
		e.Spec.BackendConfig[submarinerv1.BackendMissing] = text
	}
	announceShare(o, e.Spec.BackendConfig)
	if l.NotRunning != "" {
		e.Spec.BackendConfig[submarinerv1.BackendNotRunning] = l.NotRunning
	}
	for _, n := range l.Subnets {
		e.Spec.Subnets = append(e.Spec.Subnets, n.String())
	}
	for _, ip := range o.Translates.Returned {
		e.Spec.AllocatedIPs = append(e.Spec.AllocatedIPs, ip.String())
	}
	if l.PublicIP.IsValid() {
		e.Spec.PublicIP = l.PublicIP.String()
	}
	if l.HealthIP.IsValid() {
		e.Spec.HealthCheckIP = l.HealthIP.String()
	}
	return e
}

// Cluster returns the Cluster of this cluster, with its settings of cable drivers.
func Cluster(m members.Membership, s role.Snapshot, settings map[string]cable.Config) *submarinerv1.Cluster {
	spec := m.Submariner.Spec
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: spec.ClusterID, Namespace: submarinerv1.OperatorNamespace},
		Spec: submarinerv1.ClusterSpec{
			ClusterID:   spec.ClusterID,
			ColorCodes:  []string{"blue"},
			ClusterSets: m.Sets,
			ServiceCIDR: []string{},
			ClusterCIDR: []string{},
			GlobalCIDR:  []string{},
			PublicKey:   publicKey(m, s),
			Encryption:  spec.Encryption,
		},
	}
	for _, n := range m.Own.Services {
		c.Spec.ServiceCIDR = append(c.Spec.ServiceCIDR, n.String())
	}
	for _, n := range m.Own.Pods {
		c.Spec.ClusterCIDR = append(c.Spec.ClusterCIDR, n.String())
	}
	for _, n := range m.Own.Global {
		c.Spec.GlobalCIDR = append(c.Spec.GlobalCIDR, n.String())
	}
	if text := cable.FormatConfig(settings); text != "" {
		c.Annotations = map[string]string{submarinerv1.CableConfigAnnotation: text}
	}
	if read := policiesRead(m, s); read != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, submarinerv1.PoliciesAnnotation, read)
	}
	if s.ClusterSets != nil {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, submarinerv1.ClusterSetsAnnotation, strings.Join(m.Sets, ","))
	} else if was := m.Cluster; was != nil {
		if noted, ok := was.Annotations[submarinerv1.ClusterSetsAnnotation]; ok {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, submarinerv1.ClusterSetsAnnotation, noted)
		}
	}
	joined := submarinerv1.FormatLabels(m.Submariner.ClusterLabels())
	c.Labels = members.ClusterLabels(joined, m.Cluster)
	if joined != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.ClusterLabelsAnnotation, joined)
	}
	return c
}

// publicKey returns the cluster's public key. It belongs to the private key that this
// gateway uses, so that other clusters learn of a key only once it is in use. Without a
// private key it is the one that join recorded.
func publicKey(m members.Membership, s role.Snapshot) string {
	if r := s.Keys; r != nil && len(r.Private.Bytes()) > 0 {
		return r.Private.Public().String()
	}
	return m.Submariner.Annotations[v1alpha1.PublicKeyAnnotation]
}

// policiesRead returns the annotation that the speaker's Cluster should have: what the
// exchange has read, or, if it has not read everything yet, the annotation that is there.
func policiesRead(m members.Membership, s role.Snapshot) string {
	if digest := s.PoliciesDigest; digest != "" {
		return mesh.PoliciesRead(m.Submariner.Spec, m.Sets, digest)
	}
	if c := m.Cluster; c != nil {
		return c.Annotations[submarinerv1.PoliciesAnnotation]
	}
	return ""
}
