package mesh

import (
	"maps"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
)

// publishEndpoint makes this gateway known.
func (r *Report) publishEndpoint(m *Mesh) {
	e := m.endpoint()
	if old := Find[*submarinerv1.Endpoint](m.Snapshot, e.Name); old == nil || !reflect.DeepEqual(old.Spec, e.Spec) {
		r.Apply = append(r.Apply, e)
	}
}

// publishCluster makes this cluster known.
func (r *Report) publishCluster(m *Mesh) {
	c, old := m.cluster(), m.Membership.Cluster
	if old == nil || !reflect.DeepEqual(old.Spec, c.Spec) || !labelled(old, c) ||
		old.Annotations[submarinerv1.CableConfigAnnotation] != c.Annotations[submarinerv1.CableConfigAnnotation] ||
		old.Annotations[submarinerv1.PoliciesAnnotation] != c.Annotations[submarinerv1.PoliciesAnnotation] {
		r.Apply = append(r.Apply, c)
	}
}

// endpoint returns the Endpoint of this node as a gateway.
func (m *Mesh) endpoint() *submarinerv1.Endpoint {
	l := m.Local
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: l.Cluster + "-" + l.Name, Namespace: submarinerv1.OperatorNamespace},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: l.Cluster, CableName: l.Name, Hostname: l.Host, PrivateIP: l.PrivateIP.String(),
			NATEnabled: l.NAT, Backend: m.Offer.Default.Name(), Subnets: []string{},
			BackendConfig: map[string]string{
				submarinerv1.BackendNATDiscoveryPort: strconv.Itoa(dataplane.NATDiscoveryPort),
			},
		},
	}
	var offered []string
	missing := m.Offer.missing(l)
	for _, d := range m.Offer.Drivers {
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
	m.announceShare(e.Spec.BackendConfig)
	for _, n := range l.Subnets {
		e.Spec.Subnets = append(e.Spec.Subnets, n.String())
	}
	for _, ip := range m.Translates.Returned {
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

// cluster returns the Cluster of this cluster.
func (m *Mesh) cluster() *submarinerv1.Cluster {
	spec := m.Membership.Submariner.Spec
	c := &submarinerv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: spec.ClusterID, Namespace: submarinerv1.OperatorNamespace},
		Spec: submarinerv1.ClusterSpec{
			ClusterID: spec.ClusterID, ColorCodes: []string{"blue"}, ClusterSets: m.Membership.Sets,
			ServiceCIDR: []string{}, ClusterCIDR: []string{}, GlobalCIDR: []string{}, PublicKey: m.publicKey(), Encryption: spec.Encryption,
		},
	}
	for _, n := range m.Membership.Own.Services {
		c.Spec.ServiceCIDR = append(c.Spec.ServiceCIDR, n.String())
	}
	for _, n := range m.Membership.Own.Pods {
		c.Spec.ClusterCIDR = append(c.Spec.ClusterCIDR, n.String())
	}
	for _, n := range m.Membership.Own.Global {
		c.Spec.GlobalCIDR = append(c.Spec.GlobalCIDR, n.String())
	}
	if text := cable.FormatConfig(m.Offer.Settings); text != "" {
		c.Annotations = map[string]string{submarinerv1.CableConfigAnnotation: text}
	}
	if read := m.policiesRead(); read != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, submarinerv1.PoliciesAnnotation, read)
	}
	if m.Snapshot.ClusterSets != nil {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, submarinerv1.ClusterSetsAnnotation, strings.Join(m.Membership.Sets, ","))
	} else if was := m.Membership.Cluster; was != nil {
		if noted, ok := was.Annotations[submarinerv1.ClusterSetsAnnotation]; ok {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, submarinerv1.ClusterSetsAnnotation, noted)
		}
	}
	joined := submarinerv1.FormatLabels(m.Membership.Submariner.ClusterLabels())
	c.Labels = clusterLabels(joined, m.Membership.Cluster)
	if joined != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.ClusterLabelsAnnotation, joined)
	}
	return c
}

// publicKey returns the cluster's public key. It belongs to the private key that this
// gateway uses, so that other clusters learn of a key only once it is in use. Without a
// private key it is the one that join recorded.
func (m *Mesh) publicKey() string {
	if r := m.Snapshot.Keys; r != nil && len(r.Private.Bytes()) > 0 {
		return r.Private.Public().String()
	}
	return m.Membership.Submariner.Annotations[v1alpha1.PublicKeyAnnotation]
}
