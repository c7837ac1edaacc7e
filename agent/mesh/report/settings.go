package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/role"
)

// ConditionCableConfigValid is the condition of a Gateway that is False if the
// cluster's own settings of its cable drivers cannot be used.
const ConditionCableConfigValid = "CableConfigValid"

// Reasons of CableConfigValid.
const (
	reasonBadCableConfig = "BadCableConfig"
	reasonInForce        = "InForce"
)

// settingsCondition returns CableConfigValid. was are the conditions that were reported before.
func settingsCondition(o mesh.Offer, was []metav1.Condition, now time.Time) metav1.Condition {
	if o.Err != nil {
		message := role.Clip("the settings before stay in force: " + o.Err.Error())
		return role.Condition(was, ConditionCableConfigValid, false, reasonBadCableConfig, message, now)
	}
	return role.Condition(was, ConditionCableConfigValid, true, reasonInForce,
		"the settings of the cable drivers are in force", now)
}
