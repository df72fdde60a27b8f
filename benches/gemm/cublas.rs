//! The same product by cuBLAS, where its library is found.

use cudarc::cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType};
use cudarc::cublas::{CudaBlas, result, sys};
use cudarc::driver::CudaStream;
use kda::checks::gemm::Product;
use std::ffi::c_void;
use std::sync::Arc;

use super::Failure;

/// cuBLAS on one stream.
pub struct Cublas(CudaBlas);

impl Cublas {
    /// A handle, if the library is found.
    pub fn open(stream: &Arc<CudaStream>) -> Result<Option<Cublas>, Failure> {
        // SAFETY: the library is loaded and not called.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        Ok(Some(Cublas(CudaBlas::new(Arc::clone(stream))?)))
    }

    /// Enqueues C = A · Bᵀ with the operands of `product`, bf16 with f32 accumulation, into its result.
    pub fn product(&self, product: &Product, [m, n, k]: [u64; 3]) -> Result<(), Failure> {
        let (one, zero) = (1.0f32, 0.0f32);
        let scalar = |x: &f32| std::ptr::from_ref(x).cast::<c_void>();
        let [a, b, c] = product.places();
        let bf16 = cudaDataType::CUDA_R_16BF;
        // SAFETY: the matrices hold m x k, n x k and m x n elements of bf16 and outlive the call's work. cuBLAS has columns first:
        // it sees the transposes of all three.
        unsafe {
            result::gemm_ex(
                *self.0.handle(),
                cublasOperation_t::CUBLAS_OP_T,
                cublasOperation_t::CUBLAS_OP_N,
                n as i32,
                m as i32,
                k as i32,
                scalar(&one),
                b as *const c_void,
                bf16,
                k as i32,
                a as *const c_void,
                bf16,
                k as i32,
                scalar(&zero),
                c as *mut c_void,
                bf16,
                product.pitch() as i32,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )?;
        }
        Ok(())
    }
}
