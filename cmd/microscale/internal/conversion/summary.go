// Package conversion prints what was done to a checkpoint, or is planned, as text and
// as JSON: plans, errors of weights, inspections and verifications.
package conversion
