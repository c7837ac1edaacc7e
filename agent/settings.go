package agent

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/ipsec"
)

// This file finds out which cable drivers a cluster offers, and its own settings of
// them: what the Submariner says of IPsec, and over that the ConfigMap it names.
//
// A mistake in them must not take cables down: then what was in force before stays. The
// drivers are in the cluster's Endpoint; the settings the active gateway notes on the
// Cluster object for itself, for its successor, and for the route agents, which read no
// ConfigMaps.

// readListed fills in which drivers this cluster may offer, whatever its gateways are
// able to. After a mistake in that, it is what the cluster's Endpoint says it offered
// before.
func (v *view) readListed() {
	offered, err := drivers.Listed(v.sub.Spec)
	if err == nil {
		v.driver, v.listed = offered[0], offered
		return
	}
	v.listedErr = err
	v.driver = drivers.Find(drivers.Default) // of a cluster that offers none
	for _, e := range List[*submarinerv1.Endpoint](v.snap) {
		g, err := cable.Parse(e.Spec)
		if d := drivers.Find(g.Default); err != nil || d == nil || !v.isOwn(e) {
			continue
		} else {
			v.driver, v.listed = d, nil
		}
		for _, name := range g.Drivers {
			if d := drivers.Find(name); d != nil {
				v.listed = append(v.listed, d)
			}
		}
	}
}

// readSettings fills in settings, and configErr if those the user wants cannot be had.
func (v *view) readSettings() {
	settings, err := v.wanted()
	v.configErr = errors.Join(v.listedErr, err)
	if v.settings = settings; err == nil {
		return
	}
	v.settings = nil // the defaults, if nothing was in force before
	if own := v.ownCluster(); own != nil {
		before, err := cable.ParseConfig(own.Annotations[submarinerv1.CableConfigAnnotation], drivers.All())
		if err == nil && cable.CheckPorts(before, v.listed) == nil {
			v.settings = before
		}
	}
}

// wanted are the settings as the user has them.
func (v *view) wanted() (map[string]cable.Config, error) {
	spec, err := ipsec.SettingsOf(v.sub.Spec)
	own, err2 := v.configMapSettings()
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	for name, c := range own {
		spec[name] = spec[name].With(c)
	}
	return spec, cable.CheckPorts(spec, v.listed)
}

// configMapSettings are those in the ConfigMap that the Submariner names.
func (v *view) configMapSettings() (map[string]cable.Config, error) {
	ref := v.sub.Spec.CableDriverCustomConfig
	if ref == nil || ref.ConfigMapName == "" {
		return nil, nil
	}
	if ns := cmp.Or(ref.Namespace, submarinerv1.OperatorNamespace); ns != submarinerv1.OperatorNamespace {
		return nil, fmt.Errorf("Submariner.spec.cableDriverCustomConfig names ConfigMap %s in namespace %s, but a pod can only have those of its own: put it into %s",
			ref.ConfigMapName, ns, submarinerv1.OperatorNamespace)
	}
	cm := find[*corev1.ConfigMap](v.snap, ref.ConfigMapName)
	if cm == nil {
		return nil, fmt.Errorf("there is no ConfigMap %s in namespace %s, which Submariner.spec.cableDriverCustomConfig names: make it, or remove the name",
			ref.ConfigMapName, submarinerv1.OperatorNamespace)
	}
	text, err := cable.ConfigText(cm.Data)
	var own map[string]cable.Config
	if err == nil {
		own, err = cable.ParseConfig(text, drivers.All())
	}
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s, key %s: %w", cm.Name, v1alpha1.CableCustomConfig, err)
	}
	return own, nil
}

// ownCluster is the Cluster object of this cluster; nil if there is none yet.
func (v *view) ownCluster() *submarinerv1.Cluster {
	c := find[*submarinerv1.Cluster](v.snap, v.sub.Spec.ClusterID)
	if c == nil || c.Labels[submarinerv1.ClusterIDLabel] != "" {
		return nil
	}
	return c
}

// ConditionCableConfigValid is the condition of Gateways that says whether the
// cluster's own settings of its cable drivers can be used.
const ConditionCableConfigValid = "CableConfigValid"

// Reasons of CableConfigValid.
const (
	reasonBadCableConfig = "BadCableConfig"
	reasonInForce        = "InForce"
)

// configCondition says whether the cluster's own settings can be used. was is what was
// reported before.
func (v *view) configCondition(was []metav1.Condition, now time.Time) metav1.Condition {
	if v.configErr != nil {
		message := clip("the settings before stay in force: " + v.configErr.Error())
		return condition(was, ConditionCableConfigValid, false, reasonBadCableConfig, message, now)
	}
	return condition(was, ConditionCableConfigValid, true, reasonInForce, "the settings of the cable drivers are in force", now)
}
