//go:build !linux

package main

func resetResident() {}

func resident() int64 { return 0 }

func processorSeconds() float64 { return 0 }
