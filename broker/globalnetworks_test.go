package broker_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/globalnet"
	"subctl/internal/kubetest"
)

// deployGlobalnet makes a broker with globalnet, and returns its settings.
func deployGlobalnet(t *testing.T, cidr string, size uint) (*deployed, globalnet.Info) {
	t.Helper()
	info, err := globalnet.Parse(cidr, size)
	require.NoError(t, err)
	return &deployed{
		brokertest.DeployWith(t, kubetest.Shared(t), broker.Options{Globalnet: info, Sets: []string{"prod"}}),
	}, info
}

// reserve joins a cluster, and reserves its global network.
func (d *deployed) reserve(
	ctx context.Context,
	c client.Client,
	info globalnet.Info,
	r globalnet.NetworkRequest,
) (netip.Prefix, error) {
	uid, err := broker.EnsureMember(ctx, c, d.NS, r.Cluster, "uid-"+r.Cluster, broker.Reservation{})
	if err != nil {
		return netip.Prefix{}, err
	}
	return broker.ReserveNetwork(ctx, c, d.NS, info, broker.NetworkRequest{NetworkRequest: r, Account: uid}, time.Now())
}

func (d *deployed) networks(t *testing.T) globalnet.Record {
	t.Helper()
	record, err := broker.GlobalNetworks(t.Context(), d.Admin, d.NS, time.Now())
	require.NoError(t, err)
	return record
}

// A dozen clusters that join at the same time, with networks of different sizes, get a dozen
// networks that have no address in common. Each gets the same again.
func TestConcurrentJoinsGetDifferentNetworks(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 1024)
	joiner, _ := d.Joiner(t)
	const clusters = 12
	var got [clusters]netip.Prefix
	var errs [clusters]error
	var all sync.WaitGroup
	for i := range clusters {
		all.Go(func() {
			got[i], errs[i] = d.reserve(t.Context(), joiner, info,
				globalnet.NetworkRequest{Cluster: fmt.Sprintf("c%d", i), Size: 256 << (i % 4)})
		})
	}
	all.Wait()
	for i := range clusters {
		require.NoError(t, errs[i])
		require.Equal(t, 24-i%4, got[i].Bits())
		for j := range i {
			require.False(t, got[i].Overlaps(got[j]), "c%d has %v, and c%d has %v", i, got[i], j, got[j])
		}
		again, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: fmt.Sprintf("c%d", i)})
		require.NoError(t, err)
		require.Equal(t, got[i], again)
	}
	require.Len(t, d.networks(t), clusters)
}

// The network of a cluster is free once the cluster has left, whoever removed it and however far
// that got. A cluster that joins again meanwhile gets it back unless another one has it.
func TestNetworksAreReleased(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 1<<15)
	joiner, _ := d.Joiner(t)
	reserve := func(id string, before netip.Prefix) (netip.Prefix, error) {
		return d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: id, Before: before})
	}
	lower, err := reserve("east", netip.Prefix{})
	require.NoError(t, err)
	upper, err := reserve("west", netip.Prefix{})
	require.NoError(t, err)
	_, err = reserve("north", netip.Prefix{})
	require.ErrorContains(
		t,
		err,
		"no network of 32768 addresses is free in the range 10.0.0.0/16 of the broker, in which 2 clusters have networks: "+
			"let the administrator of the broker enlarge the range with subctl deploy-broker --globalnet --globalnet-cidr-range 10.0.0.0/15",
	)
	larger, err := globalnet.Parse("10.0.0.0/15", 1<<15)
	require.NoError(t, err)
	n, err := d.reserve(t.Context(), joiner, larger, globalnet.NetworkRequest{Cluster: "north"})
	require.NoError(t, err)
	require.Equal(t, "10.1.0.0/17", n.String(), "enlarging the range works")

	// West is uninstalled, with its own rights.
	west := d.Join(t, "west", "uid-west")
	require.NoError(t, broker.RemoveMember(t.Context(), west, d.NS, []string{"default"}, "west", trust.PublicKey{}))
	require.Empty(t, d.networks(t).Find("west"))
	n, err = reserve("west", upper)
	require.NoError(t, err)
	require.Equal(t, upper, n, "it joins again, and nobody has its network")
	// The administrator revokes it.
	require.NoError(
		t,
		broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default"}, "west", brokertest.Key("administrator"),
			time.Now()),
	)
	n, err = reserve("south", netip.Prefix{})
	require.NoError(t, err)
	require.Equal(t, upper, n)
	_, err = reserve("west", upper)
	require.ErrorContains(t, err, "no network of 32768 addresses is free")
	require.Equal(t, []netip.Prefix{lower}, d.networks(t).Find("east").Networks)
}

// A cluster that changes its network has both until it has changed.
func TestChangedNetwork(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 256)
	joiner, _ := d.Joiner(t)
	old, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east"})
	require.NoError(t, err)
	other := netip.MustParsePrefix("172.31.0.0/24")
	changed, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east", Network: other})
	require.NoError(t, err)
	require.Equal(t, other, changed)
	require.Equal(t, []netip.Prefix{other, old}, d.networks(t).Find("east").Networks)
	_, err = d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "west", Network: old})
	require.EqualError(t, err,
		`global network 10.0.0.0/24 overlaps 10.0.0.0/24 of cluster "east": choose another one, or omit --globalnet-cidr to get a free one`)
	require.NoError(t, broker.SettleNetwork(t.Context(), joiner, d.NS, "east", other, time.Now()))
	n, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "west", Network: old})
	require.NoError(t, err)
	require.Equal(t, old, n)
	require.NoError(t, broker.SettleNetwork(t.Context(), joiner, d.NS, "east", netip.Prefix{}, time.Now()))
	require.Empty(t, d.networks(t).Find("east"))
}

// An invitation reserves a network, which the invited cluster needs no right to record. It stays
// reserved until the invitation has expired or is void, and for as long as the cluster is a member.
func TestInvitedNetwork(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 256)
	hub := &v1alpha1.Broker{}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: v1alpha1.BrokerName}, hub))
	now := time.Now()
	invite := func(request *globalnet.NetworkRequest) (*broker.JoinFile, error) {
		return broker.InviteCluster(
			t.Context(),
			d.Admin,
			hub,
			broker.Invitation{
				URL:           d.Server.Config().Host,
				PSK:           make(broker.Secret, 48),
				Administrator: brokertest.Key("administrator"),
				TTL:           time.Hour,
				Global:        request,
			},
			trust.Invitation{
				Cluster:  "east",
				Gateways: 2,
				Sets:     []string{"prod"},
				Networks: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")},
			},
			now,
		)
	}
	file, err := invite(&globalnet.NetworkRequest{Cluster: "east"})
	require.NoError(t, err)
	i, err := file.Invited()
	require.NoError(t, err)
	require.Equal(t, "10.0.0.0/24", i.Global.String())
	require.True(t, i.Allows(i.Global), "besides the networks that it may announce otherwise")
	require.False(t, i.Allows(netip.MustParsePrefix("10.0.0.0/23")))

	joiner, _ := d.Joiner(t)
	n, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "west"})
	require.NoError(t, err)
	require.Equal(t, "10.0.1.0/24", n.String())
	later := now.Add(3 * time.Hour)
	record, err := broker.GlobalNetworks(t.Context(), d.Admin, d.NS, later)
	require.NoError(t, err)
	require.Empty(t, record.Find("east"), "expired, and it has not joined")

	_, err = broker.EnsureMember(t.Context(), d.Admin, d.NS, "east", "uid-east",
		broker.Reservation{Sets: []string{"prod"}})
	require.NoError(t, err)
	record, err = broker.GlobalNetworks(t.Context(), d.Admin, d.NS, later)
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{i.Global}, record.Find("east").Networks, "it has joined")
	file, err = invite(&globalnet.NetworkRequest{Cluster: "east"})
	require.NoError(t, err)
	i, err = file.Invited()
	require.NoError(t, err)
	require.Equal(t, "10.0.0.0/24", i.Global.String(), "invited again")
	_, err = invite(&globalnet.NetworkRequest{Cluster: "west", Network: n})
	require.NoError(t, err)
	_, err = invite(&globalnet.NetworkRequest{Cluster: "north", Network: n})
	require.ErrorContains(t, err, `global network 10.0.1.0/24 overlaps 10.0.1.0/24 of cluster "west"`)
	_, err = invite(nil)
	require.NoError(t, err)
	require.NoError(
		t,
		broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default", "prod"}, "east", brokertest.Key("administrator"),
			now),
	)
	require.Empty(t, d.networks(t).Find("east"))
}

// Only the administrator and the holders of general join files write the record: no member and no
// invited cluster can read which clusters there are, or take a network. A general join file changes
// no setting.
func TestHostileWriterOfGlobalNetworks(t *testing.T) {
	d, info := deployGlobalnet(t, "10.0.0.0/16", 256)
	joiner, _ := d.Joiner(t)
	_, err := d.reserve(t.Context(), joiner, info, globalnet.NetworkRequest{Cluster: "east"})
	require.NoError(t, err)
	key := client.ObjectKey{Namespace: d.NS, Name: globalnet.ConfigMapName}
	before := &corev1.ConfigMap{}
	require.NoError(t, d.Admin.Get(t.Context(), key, before))
	steal := func(cm *corev1.ConfigMap) { cm.Data[globalnet.ClusterInfoKey] = "[]" }
	for name, c := range map[string]client.Client{
		"a member":           d.Join(t, "west", "uid-west"),
		"an invited cluster": d.invitee(t, "north", "default"),
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, apierrors.IsForbidden(c.Get(t.Context(), key, &corev1.ConfigMap{})))
			require.True(t,
				apierrors.IsForbidden(c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(d.NS))))
			require.True(t,
				apierrors.IsForbidden(c.List(t.Context(), &corev1.ServiceAccountList{}, client.InNamespace(d.NS))))
			cm := before.DeepCopy()
			steal(cm)
			require.True(t, apierrors.IsForbidden(c.Update(t.Context(), cm)))
			require.True(
				t,
				apierrors.IsForbidden(
					c.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, []byte(`{"data":{"x":"y"}}`)))),
			)
			require.True(t, apierrors.IsForbidden(c.Delete(t.Context(), cm)))
		})
	}
	for name, change := range map[string]func(*corev1.ConfigMap){
		"the range": func(cm *corev1.ConfigMap) {
			cm.Data[globalnet.RangeKey] = `"10.0.0.0/8"`
		},
		"no size":     func(cm *corev1.ConfigMap) { delete(cm.Data, globalnet.ClusterSizeKey) },
		"another key": func(cm *corev1.ConfigMap) { cm.Data["more"] = "x" },
		"binary data": func(cm *corev1.ConfigMap) {
			cm.BinaryData = map[string][]byte{"more": {1}}
		},
		"a finalizer": func(cm *corev1.ConfigMap) {
			cm.Finalizers = []string{"example.com/kept"}
		},
		"that nobody may change it any more": func(cm *corev1.ConfigMap) { cm.Immutable = ptr.To(true) },
		"an owner, with which it is deleted": func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ServiceAccount", Name: "cluster-west", UID: "gone"},
			}
		},
		"a label":         func(cm *corev1.ConfigMap) { cm.Labels = map[string]string{"x": "y"} },
		"an annotation":   func(cm *corev1.ConfigMap) { metav1.SetMetaDataAnnotation(&cm.ObjectMeta, "x", "y") },
		"another one":     func(cm *corev1.ConfigMap) { cm.Name = "kube-root-ca.crt" },
		"an earlier read": func(cm *corev1.ConfigMap) { cm.ResourceVersion = "1" },
	} {
		t.Run("the holder of a general file writes "+name, func(t *testing.T) {
			cm := before.DeepCopy()
			steal(cm)
			change(cm)
			require.Error(t, joiner.Update(t.Context(), cm))
		})
	}
	cm := before.DeepCopy()
	require.Error(t,
		joiner.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.NS, Name: "more"}}))
	require.Error(t, joiner.Delete(t.Context(), cm))
	steal(cm)
	require.NoError(t, joiner.Update(t.Context(), cm), "what is refused above is not refused because of something else")
}
